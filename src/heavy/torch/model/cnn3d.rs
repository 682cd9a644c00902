//! The network of Sapsan's CNN3d example, for cubes: three convolutions that shrink a cube to one point,
//! and two linear layers.
//!
//! ```python
//! class Cnn3d(nn.Module):
//!     def __init__(self, c, outputs):
//!         super().__init__()
//!         self.conv3d = nn.Conv3d(c, 2 * c, 2, stride=2, padding=1)
//!         self.conv3d2 = nn.Conv3d(2 * c, 2 * c, 2, stride=2, padding=1)
//!         self.conv3d3 = nn.Conv3d(2 * c, 4 * c, 2, stride=2, padding=1)
//!         self.linear = nn.Linear(4 * c, 8 * c)
//!         self.linear2 = nn.Linear(8 * c, outputs)
//!
//!     def forward(self, x):
//!         x = F.relu(F.max_pool3d(self.conv3d(x), 2, padding=1))
//!         x = F.relu(F.max_pool3d(self.conv3d2(x), 2, padding=1))
//!         x = F.max_pool3d(self.conv3d3(x), 2).flatten(1)
//!         return self.linear2(F.relu(self.linear(x)))
//! ```

use tch::{TchError, Tensor};

use super::layers::{Conv, Linear, Place};
use super::{Net, Parts};

/// See the head of this file.
#[derive(Debug)]
pub(super) struct Cnn3d {
    convs: [Conv; 3],
    linears: [Linear; 2],
}

/// The length of an edge after the three stages.
fn end(edge: i64) -> i64 {
    let conv = |edge: i64| edge / 2 + 1;
    conv(conv(conv(conv(conv(edge))))) / 2
}

impl Cnn3d {
    pub(super) fn new(
        place: Place,
        [channels, depth, height, width]: [i64; 4],
        outputs: i64,
    ) -> tch::Result<Self> {
        if [depth, height, width].map(end) != [1, 1, 1] {
            return Err(TchError::Shape(format!(
                "model `cnn3d` needs cubes with edges of 2 to 65 points, not {depth}x{height}x{width}"
            )));
        }
        let conv = |inputs, outputs| Conv::new::<3>(place, [inputs, outputs], 2, 2, 1, true);
        Ok(Self {
            convs: [
                conv(channels, 2 * channels)?,
                conv(2 * channels, 2 * channels)?,
                conv(2 * channels, 4 * channels)?,
            ],
            linears: [
                Linear::new(place, 4 * channels, 8 * channels)?,
                Linear::new(place, 8 * channels, outputs)?,
            ],
        })
    }
}

impl Net for Cnn3d {
    fn forward(&self, x: &Tensor, _: bool) -> tch::Result<Tensor> {
        let pool = |x: &Tensor, padding: i64| {
            x.f_max_pool3d([2, 2, 2], [2, 2, 2], [padding; 3], [1, 1, 1], false)
        };
        let [first, second, third] = &self.convs;
        let x = pool(&first.forward(x)?, 1)?.f_relu()?;
        let x = pool(&second.forward(&x)?, 1)?.f_relu()?;
        let x = pool(&third.forward(&x)?, 0)?.f_flatten(1, -1)?;
        let [wide, last] = &self.linears;
        last.forward(&wide.forward(&x)?.f_relu()?)
    }

    fn parts(&self) -> tch::Result<Parts> {
        let mut parts = Parts::default();
        for (conv, name) in self.convs.iter().zip(["conv3d", "conv3d2", "conv3d3"]) {
            conv.collect(name, &mut parts);
        }
        for (linear, name) in self.linears.iter().zip(["linear", "linear2"]) {
            linear.collect(name, &mut parts);
        }
        Ok(parts)
    }
}

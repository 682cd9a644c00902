//! Linear layers with ReLU between them.
//!
//! ```python
//! class Mlp(nn.Module):
//!     def __init__(self, inputs, hidden, outputs, dropout=0.0, batch_norm=False):
//!         super().__init__()
//!         layers = []
//!         for width in hidden:
//!             layers.append(nn.Linear(inputs, width))
//!             if batch_norm:
//!                 layers.append(nn.BatchNorm1d(width))
//!             layers.append(nn.ReLU())
//!             if dropout > 0:
//!                 layers.append(nn.Dropout(dropout))
//!             inputs = width
//!         layers.append(nn.Linear(inputs, outputs))
//!         self.layers = nn.Sequential(*layers)
//!
//!     def forward(self, x):
//!         return self.layers(x.flatten(1))
//! ```

use tch::Tensor;

use super::layers::{BatchNorm, Linear, Place, dropout};
use super::{Net, Parts};

/// See the head of this file.
#[derive(Debug)]
pub(super) struct Mlp {
    hidden: Vec<(Linear, Option<BatchNorm>)>,
    last: Linear,
    dropout: f64,
}

impl Mlp {
    pub(super) fn new(
        place: Place,
        mut inputs: i64,
        widths: &[i64],
        outputs: i64,
        dropout: f64,
        batch_norm: bool,
    ) -> tch::Result<Self> {
        let mut hidden = Vec::with_capacity(widths.len());
        for width in widths {
            let linear = Linear::new(place, inputs, *width)?;
            let norm = if batch_norm { Some(BatchNorm::new(place, *width)?) } else { None };
            hidden.push((linear, norm));
            inputs = *width;
        }
        Ok(Self { hidden, last: Linear::new(place, inputs, outputs)?, dropout })
    }
}

impl Net for Mlp {
    fn forward(&self, x: &Tensor, train: bool) -> tch::Result<Tensor> {
        let mut x = x.f_flatten(1, -1)?;
        for (linear, norm) in &self.hidden {
            x = linear.forward(&x)?;
            if let Some(norm) = norm {
                x = norm.forward(&x, train)?;
            }
            x = dropout(x.f_relu()?, self.dropout, train)?;
        }
        self.last.forward(&x)
    }

    fn parts(&self) -> tch::Result<Parts> {
        let mut parts = Parts::default();
        let mut layer_index = 0;
        for (linear, norm) in &self.hidden {
            linear.collect(&format!("layers.{layer_index}"), &mut parts);
            if let Some(norm) = norm {
                layer_index += 1;
                norm.collect(&format!("layers.{layer_index}"), &mut parts);
            }
            layer_index += if self.dropout > 0.0 { 3 } else { 2 };
        }
        self.last.collect(&format!("layers.{layer_index}"), &mut parts);
        Ok(parts)
    }
}

//! A small convolutional network for images.
//!
//! ```python
//! class Cnn(nn.Module):
//!     def __init__(self, shape, channels, outputs, dropout=0.0):
//!         super().__init__()
//!         (inputs, height, width), features = shape, []
//!         for c in channels:
//!             features += [nn.Conv2d(inputs, c, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
//!             inputs, height, width = c, height // 2, width // 2
//!         self.features = nn.Sequential(*features)
//!         self.dropout = nn.Dropout(dropout)
//!         self.classifier = nn.Linear(inputs * height * width, outputs)
//!
//!     def forward(self, x):
//!         return self.classifier(self.dropout(self.features(x).flatten(1)))
//! ```

use tch::{TchError, Tensor};

use super::layers::{Conv, Linear, Place, channels_last, dropout};
use super::{Net, Parts};

/// See the head of this file.
#[derive(Debug)]
pub(super) struct Cnn {
    features: Vec<Conv>,
    classifier: Linear,
    dropout: f64,
}

impl Cnn {
    pub(super) fn new(
        place: Place,
        [mut inputs, mut height, mut width]: [i64; 3],
        channels: &[i64],
        outputs: i64,
        dropout: f64,
    ) -> tch::Result<Self> {
        let mut features = Vec::with_capacity(channels.len());
        for outputs in channels {
            if height < 2 || width < 2 {
                return Err(TchError::Shape(format!(
                    "images are too small for {} convolutions, each of which halves them",
                    channels.len()
                )));
            }
            features.push(Conv::new::<2>(place, [inputs, *outputs], 3, 1, 1, true)?);
            (inputs, height, width) = (*outputs, height / 2, width / 2);
        }
        let classifier = Linear::new(place, inputs * height * width, outputs)?;
        Ok(Self { features, classifier, dropout })
    }
}

impl Net for Cnn {
    fn forward(&self, x: &Tensor, train: bool) -> tch::Result<Tensor> {
        let mut x = channels_last(x)?;
        for conv in &self.features {
            x = conv.forward(&x)?.f_relu()?;
            x = x.f_max_pool2d([2, 2], [2, 2], [0, 0], [1, 1], false)?;
        }
        self.classifier.forward(&dropout(x.f_flatten(1, -1)?, self.dropout, train)?)
    }

    fn parts(&self) -> tch::Result<Parts> {
        let mut parts = Parts::default();
        for (i, conv) in self.features.iter().enumerate() {
            conv.collect(&format!("features.{}", 3 * i), &mut parts);
        }
        self.classifier.collect("classifier", &mut parts);
        Ok(parts)
    }
}

//! ResNet-18 for small images: torchvision's `resnet18` with a first convolution 3x3 of stride 1 and
//! without the pooling behind it (He et al. 2015, section 4.2, has this stem for CIFAR).
//!
//! Names, order and first weights are torchvision's: all layers draw PyTorch's default, then every
//! convolution is drawn again by `kaiming_normal_(mode="fan_out", nonlinearity="relu")`.

use tch::Tensor;

use super::layers::{BatchNorm, Conv, Linear, Place, channels_last};
use super::{Net, Parts};

/// Two 3x3 convolutions and what goes past them.
#[derive(Debug)]
struct Block {
    convs: [Conv; 2],
    norms: [BatchNorm; 2],
    downsample: Option<(Conv, BatchNorm)>,
}

/// See the head of this file.
#[derive(Debug)]
pub(super) struct Resnet {
    conv: Conv,
    norm: BatchNorm,
    layers: Vec<[Block; 2]>,
    fc: Linear,
}

impl Block {
    fn new(place: Place, inputs: i64, outputs: i64, stride: i64) -> tch::Result<Self> {
        let conv =
            |channels, size, stride| Conv::new::<2>(place, channels, size, stride, size / 2, false);
        // torchvision makes it before the block.
        let downsample = if stride != 1 || inputs != outputs {
            Some((conv([inputs, outputs], 1, stride)?, BatchNorm::new(place, outputs)?))
        } else {
            None
        };
        Ok(Self {
            convs: [conv([inputs, outputs], 3, stride)?, conv([outputs, outputs], 3, 1)?],
            norms: [BatchNorm::new(place, outputs)?, BatchNorm::new(place, outputs)?],
            downsample,
        })
    }

    fn redraw(&mut self) -> tch::Result<()> {
        for conv in &mut self.convs {
            conv.redraw_normal()?;
        }
        self.downsample.as_mut().map_or(Ok(()), |(conv, _)| conv.redraw_normal())
    }

    fn forward(&self, x: &Tensor, train: bool) -> tch::Result<Tensor> {
        let [conv1, conv2] = &self.convs;
        let [norm1, norm2] = &self.norms;
        let y = norm1.forward(&conv1.forward(x)?, train)?.f_relu_()?;
        let mut y = norm2.forward(&conv2.forward(&y)?, train)?;
        let past = match &self.downsample {
            Some((conv, norm)) => norm.forward(&conv.forward(x)?, train)?,
            None => x.shallow_clone(),
        };
        y.f_add_(&past)?.f_relu_()
    }

    fn collect(&self, name: &str, parts: &mut Parts) {
        for (i, (conv, norm)) in self.convs.iter().zip(&self.norms).enumerate() {
            conv.collect(&format!("{name}.conv{}", i + 1), parts);
            norm.collect(&format!("{name}.bn{}", i + 1), parts);
        }
        if let Some((conv, norm)) = &self.downsample {
            conv.collect(&format!("{name}.downsample.0"), parts);
            norm.collect(&format!("{name}.downsample.1"), parts);
        }
    }
}

impl Resnet {
    pub(super) fn new(
        place: Place,
        [channels, _, _]: [i64; 3],
        width: i64,
        outputs: i64,
    ) -> tch::Result<Self> {
        let mut conv = Conv::new::<2>(place, [channels, width], 3, 1, 1, false)?;
        let norm = BatchNorm::new(place, width)?;
        let mut layers = Vec::with_capacity(4);
        let mut inputs = width;
        for (stage, stride) in [1, 2, 2, 2].into_iter().enumerate() {
            let outputs = width << stage;
            layers.push([
                Block::new(place, inputs, outputs, stride)?,
                Block::new(place, outputs, outputs, 1)?,
            ]);
            inputs = outputs;
        }
        let fc = Linear::new(place, inputs, outputs)?;
        conv.redraw_normal()?;
        for block in layers.iter_mut().flatten() {
            block.redraw()?;
        }
        Ok(Self { conv, norm, layers, fc })
    }
}

impl Net for Resnet {
    fn forward(&self, x: &Tensor, train: bool) -> tch::Result<Tensor> {
        let x = channels_last(x)?;
        let mut x = self.norm.forward(&self.conv.forward(&x)?, train)?.f_relu_()?;
        for block in self.layers.iter().flatten() {
            x = block.forward(&x, train)?;
        }
        self.fc.forward(&x.f_adaptive_avg_pool2d([1, 1])?.f_flatten(1, -1)?)
    }

    fn parts(&self) -> tch::Result<Parts> {
        let mut parts = Parts::default();
        self.conv.collect("conv1", &mut parts);
        self.norm.collect("bn1", &mut parts);
        for (i, blocks) in self.layers.iter().enumerate() {
            for (j, block) in blocks.iter().enumerate() {
                block.collect(&format!("layer{}.{j}", i + 1), &mut parts);
            }
        }
        self.fc.collect("fc", &mut parts);
        Ok(parts)
    }
}

//! What serde cannot say of a `[train]`: ranges of numbers, and keys that do not go together.

use crate::base::fault::Fault;
use crate::base::words;
use crate::train::config::{
    Config, Data, Device, Direction, Loss, Metric, Model, Optimizer, Precision, Schedule, Source,
    Validation,
};

/// The metrics there are.
pub(crate) const METRICS: [&str; 4] = ["val_loss", "val_accuracy", "train_loss", "train_accuracy"];

impl Config {
    /// Whether this run can be: every number in its range, and nothing that contradicts itself.
    ///
    /// # Errors
    /// The first of [`Config::faults`].
    pub fn check(&self) -> Result<(), Fault> {
        self.faults().into_iter().next().map_or(Ok(()), Err)
    }

    /// Everything that is wrong; each fault names its key, `train.optimizer.lr`.
    pub(crate) fn faults(&self) -> Vec<Fault> {
        let mut report = Findings::default();
        report.least("train.epochs", self.epochs, 1);
        report.least("train.batch_size", self.batch_size, 1);
        report.least("train.accumulate", self.accumulate, 1);
        if let Some(threads) = self.threads {
            report.least("train.threads", threads, 1);
        }
        if let Some(norm) = self.clip_norm {
            report.positive("train.clip_norm", norm);
        }
        model(&mut report, &self.model);
        data(&mut report, &self.data);
        optimizer(&mut report, &self.optimizer);
        schedule(&mut report, self);
        metric(&mut report, self);
        if let Some(stop) = &self.stop {
            report.least("train.stop.patience", stop.patience, 1);
            report.not_negative("train.stop.min_delta", stop.min_delta);
            if stop.relative && stop.min_delta >= 1.0 {
                report.say(
                    "train.stop.min_delta",
                    format!(
                        "`min_delta = {}` is the whole of the best value or more",
                        stop.min_delta
                    ),
                    "a relative min_delta is a part of it, such as 0.01",
                );
            }
        }
        if self.precision == Precision::F16 && self.device == Device::Cpu {
            report.say(
                "train.precision",
                "`f16` needs a GPU, and the device is the CPU",
                "use `precision = \"bf16\"` or `device = \"gpu\"`",
            );
        }
        report.faults
    }

    /// The metric that decides. `val_loss`, the default, is `train_loss` where nothing validates.
    pub fn metric(&self) -> Metric {
        let mut metric = self.metric.clone();
        if self.data.validation.is_none() && metric.name == "val_loss" {
            metric.name = "train_loss".into();
        }
        metric
    }
}

/// The faults found so far.
#[derive(Default)]
struct Findings {
    faults: Vec<Fault>,
}

impl Findings {
    fn say(&mut self, key: &str, sentence: impl Into<String>, hint: &str) {
        self.faults.push(Fault::request(sentence).of_key(key).hint(hint));
    }

    /// Says that a number is out of its range.
    fn range(&mut self, key: &str, value: impl std::fmt::Display, is_right: bool, range: &str) {
        if !is_right {
            self.say(key, format!("`{key}` is {value}"), &format!("give {range}"));
        }
    }

    fn least(&mut self, key: &str, value: u64, least: u64) {
        self.range(key, value, value >= least, &format!("{least} or more"));
    }

    fn positive(&mut self, key: &str, value: f64) {
        self.range(key, value, value > 0.0 && value.is_finite(), "a number above 0");
    }

    fn not_negative(&mut self, key: &str, value: f64) {
        self.range(key, value, value >= 0.0 && value.is_finite(), "0 or a number above it");
    }

    /// 0 is in the range, 1 is not.
    fn below_one(&mut self, key: &str, value: f64) {
        self.range(key, value, (0.0..1.0).contains(&value), "a number from 0 to below 1");
    }

    /// Neither 0 nor 1 is in the range.
    fn part(&mut self, key: &str, value: f64) {
        self.range(key, value, value > 0.0 && value < 1.0, "a number between 0 and 1");
    }

    /// The smallest rate is not above the rate.
    fn smallest(&mut self, min: f64, lr: f64) {
        let key = "train.schedule.min";
        self.range(key, min, (0.0..=lr).contains(&min), "a rate from 0 to that of the optimizer");
    }
}

fn model(report: &mut Findings, model: &Model) {
    match model {
        Model::Mlp { hidden, outputs, dropout, .. } => {
            for width in hidden {
                report.least("train.model.hidden", *width, 1);
            }
            report.least("train.model.outputs", *outputs, 1);
            report.below_one("train.model.dropout", *dropout);
        }
        Model::Cnn { channels, outputs, dropout } => {
            for width in channels {
                report.least("train.model.channels", *width, 1);
            }
            if channels.is_empty() {
                let hint = "give the channels of each convolution, such as `[16, 32]`";
                report.say("train.model.channels", "a `cnn` without convolutions", hint);
            }
            report.least("train.model.outputs", *outputs, 1);
            report.below_one("train.model.dropout", *dropout);
        }
        Model::Resnet18 { outputs, width } => {
            report.least("train.model.outputs", *outputs, 1);
            report.least("train.model.width", *width, 1);
        }
        Model::Cnn3d { outputs } => {
            if let Some(outputs) = outputs {
                report.least("train.model.outputs", *outputs, 1);
            }
        }
        Model::Script { file } if file.is_empty() => {
            let hint = "name a file that `torch.jit.script(model).save(...)` wrote";
            report.say("train.model.file", "the model has no file", hint);
        }
        Model::Script { .. } => {}
    }
}

fn data(report: &mut Findings, data: &Data) {
    source(report, "train.data.train", &data.train);
    match &data.validation {
        Some(Validation::Fraction { fraction }) => {
            report.part("train.data.validation.fraction", *fraction);
        }
        Some(Validation::Fold { folds, fold }) => {
            report.least("train.data.validation.folds", *folds, 2);
            let key = "train.data.validation.fold";
            report.range(key, fold, fold < folds, "a number below `folds`: the first fold is 0");
        }
        Some(Validation::Source(own)) => source(report, "train.data.validation", own),
        None => {}
    }
    if let Some(test) = &data.test {
        source(report, "train.data.test", test);
    }
    for length in data.shape.iter().flatten() {
        report.least("train.data.shape", *length, 1);
    }
    let scale = data.scale;
    let is_right = scale.is_finite() && scale != 0.0;
    report.range("train.data.scale", scale, is_right, "a number other than 0");
    let offset = data.offset;
    report.range("train.data.offset", offset, offset.is_finite(), "a number");
}

fn source(report: &mut Findings, key: &str, source: &Source) {
    let is_empty = match source {
        Source::File(file) => file.is_empty(),
        Source::Files(files) => files.is_empty() || files.iter().any(String::is_empty),
        Source::Pair { inputs, targets } => inputs.is_empty() || targets.is_empty(),
        Source::Synthetic(made) => {
            report.least(&format!("{key}.samples"), made.samples, 1);
            report.least(&format!("{key}.size"), made.size, 1);
            false
        }
    };
    if is_empty {
        report.say(key, format!("`{key}` names no file"), "give the name of a file or a pattern");
    }
}

fn optimizer(report: &mut Findings, optimizer: &Optimizer) {
    let key = |name: &str| format!("train.optimizer.{name}");
    report.positive(&key("lr"), optimizer.lr());
    match optimizer {
        Optimizer::Sgd { momentum, dampening, nesterov, weight_decay, .. } => {
            report.below_one(&key("momentum"), *momentum);
            report.below_one(&key("dampening"), *dampening);
            report.not_negative(&key("weight_decay"), *weight_decay);
            if *nesterov && (*momentum == 0.0 || *dampening != 0.0) {
                report.say(
                    &key("nesterov"),
                    "Nesterov's momentum needs `momentum` above 0 and no `dampening`",
                    "set `momentum = 0.9` and leave `dampening` out",
                );
            }
        }
        Optimizer::Adam { betas, eps, weight_decay, .. }
        | Optimizer::AdamW { betas, eps, weight_decay, .. } => {
            for beta in betas {
                report.below_one(&key("betas"), *beta);
            }
            report.not_negative(&key("eps"), *eps);
            report.not_negative(&key("weight_decay"), *weight_decay);
        }
        Optimizer::RmsProp { alpha, eps, momentum, weight_decay, .. } => {
            report.below_one(&key("alpha"), *alpha);
            report.not_negative(&key("eps"), *eps);
            report.below_one(&key("momentum"), *momentum);
            report.not_negative(&key("weight_decay"), *weight_decay);
        }
    }
}

fn schedule(report: &mut Findings, config: &Config) {
    let key = |name: &str| format!("train.schedule.{name}");
    let lr = config.optimizer.lr();
    match config.schedule {
        Schedule::Constant => {}
        Schedule::Step { every, gamma } => {
            report.least(&key("every"), every, 1);
            report.positive(&key("gamma"), gamma);
        }
        Schedule::Cosine { warmup, min } => {
            let is_right = (0.0..config.epochs as f64).contains(&warmup);
            report.range(&key("warmup"), warmup, is_right, "fewer epochs than `train.epochs`");
            report.smallest(min, lr);
        }
        Schedule::OneCycle { rise, first_factor, last_factor } => {
            report.part(&key("rise"), rise);
            report.positive(&key("first_factor"), first_factor);
            report.positive(&key("last_factor"), last_factor);
        }
        Schedule::Plateau { factor, patience: _, threshold, min } => {
            report.part(&key("factor"), factor);
            report.below_one(&key("threshold"), threshold);
            report.smallest(min, lr);
        }
    }
}

fn metric(report: &mut Findings, config: &Config) {
    let Metric { name, direction } = config.metric();
    let key = "train.metric.name";
    if !METRICS.contains(&name.as_str()) {
        let hint = words::suggestion(&name, &METRICS, "there are");
        report.say(key, format!("there is no metric `{name}`"), &hint);
        return;
    }
    if name.starts_with("val_") && config.data.validation.is_none() {
        report.say(
            key,
            format!("the metric `{name}` needs validation data, and there are none"),
            "set `train.data.validation`, or use a metric of the training data",
        );
    }
    let is_accuracy = name.ends_with("_accuracy");
    if is_accuracy && config.loss != Loss::CrossEntropy {
        report.say(
            key,
            format!("the metric `{name}` needs classes, and the loss is of values"),
            "use `loss = \"cross_entropy\"`, or a loss as metric",
        );
    }
    let best = if is_accuracy { Direction::Max } else { Direction::Min };
    if direction != best {
        let (word, right) = if is_accuracy { ("less", "max") } else { ("more", "min") };
        report.say(
            "train.metric.direction",
            format!("{word} `{name}` would be better"),
            &format!("set `direction = \"{right}\"`"),
        );
    }
}

#[cfg(test)]
mod tests;

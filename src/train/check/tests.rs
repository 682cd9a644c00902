//! Which values are refused, key by key, and that no others are.

use super::*;

const PLAIN: &str = r#"
    epochs = 10
    [model]
    kind = "mlp"
    hidden = [8]
    outputs = 3
    [data]
    train = "a.npz"
"#;

/// `PLAIN` with other values at some keys, as TOML: `("data.validation", "{ fraction = 0.2 }")`.
fn config(changes: &[(&str, &str)]) -> Config {
    let mut table: toml::Table = toml::from_str(PLAIN).unwrap();
    for (key, value) in changes {
        let mut at = &mut table;
        let (path, last) = key.rsplit_once('.').unwrap_or(("", key));
        for word in path.split('.').filter(|word| !word.is_empty()) {
            let next = at.entry(word).or_insert_with(|| toml::Table::new().into());
            at = next.as_table_mut().unwrap();
        }
        let value: toml::Table = toml::from_str(&format!("v = {value}")).unwrap();
        at.insert((*last).to_owned(), value["v"].clone());
    }
    table.try_into().unwrap()
}

/// Expects one fault at `key` with this sentence.
fn refused(changes: &[(&str, &str)], key: &str, sentence: &str) {
    let faults = config(changes).faults();
    let found: Vec<(Option<&str>, &str)> =
        faults.iter().map(|fault| (fault.key.as_deref(), fault.sentence.as_str())).collect();
    assert_eq!(found, [(Some(key), sentence)], "{changes:?}");
    assert!(faults.iter().all(|fault| fault.hint.is_some()));
    assert_eq!(config(changes).check().unwrap_err(), faults[0]);
}

/// Expects that the key must not have this value, which is said as `shown`.
fn out_of_range(key: &str, value: &str, shown: &str) {
    let changes = [(key.strip_prefix("train.").unwrap(), value)];
    refused(&changes, key, &format!("`{key}` is {shown}"));
}

#[test]
fn what_can_be_is_let_through() {
    let right = |changes: &[(&str, &str)]| assert_eq!(config(changes).faults(), [], "{changes:?}");
    right(&[]);
    right(&[("data.validation", "{ folds = 5, fold = 4 }"), ("stop", "{}"), ("threads", "2")]);
    right(&[("optimizer", r#"{ kind = "sgd", lr = 0.1, momentum = 0.9, nesterov = true }"#)]);
    right(&[("optimizer", r#"{ kind = "rmsprop" }"#), ("schedule", r#"{ kind = "one_cycle" }"#)]);
    right(&[("optimizer", r#"{ kind = "adamw" }"#), ("schedule", r#"{ kind = "plateau" }"#)]);
    right(&[("schedule", r#"{ kind = "cosine", warmup = 9.5, min = 1e-3 }"#)]);
    right(&[("precision", r#""f16""#), ("metric", r#"{ name = "train_loss" }"#)]);
    let accuracy = r#"{ name = "val_accuracy", direction = "max" }"#;
    right(&[("metric", accuracy), ("data.validation", r#""v.npz""#)]);
    right(&[("data.train", r#"{ synthetic = "turbulence", samples = 8 }"#), ("loss", r#""mse""#)]);
}

#[test]
fn numbers_out_of_their_range_are_refused() {
    for key in ["train.epochs", "train.batch_size", "train.accumulate", "train.threads"] {
        out_of_range(key, "0", "0");
    }
    for (value, shown) in [("0.0", "0"), ("-1.5", "-1.5"), ("inf", "inf"), ("nan", "NaN")] {
        out_of_range("train.clip_norm", value, shown);
    }
}

#[test]
fn models_are_checked() {
    out_of_range("train.model.outputs", "0", "0");
    out_of_range("train.model.hidden", "[8, 0]", "0");
    for (value, shown) in [("1.0", "1"), ("-0.1", "-0.1"), ("nan", "NaN")] {
        out_of_range("train.model.dropout", value, shown);
    }
    let check = |model, key, sentence| refused(&[("model", model)], key, sentence);
    let cnn = r#"{ kind = "cnn", channels = [], outputs = 2 }"#;
    check(cnn, "train.model.channels", "a `cnn` without convolutions");
    let cnn = r#"{ kind = "cnn", channels = [0], outputs = 2 }"#;
    check(cnn, "train.model.channels", "`train.model.channels` is 0");
    let resnet = r#"{ kind = "resnet18", outputs = 2, width = 0 }"#;
    check(resnet, "train.model.width", "`train.model.width` is 0");
    let cubes = r#"{ kind = "cnn3d", outputs = 0 }"#;
    check(cubes, "train.model.outputs", "`train.model.outputs` is 0");
    let script = r#"{ kind = "script", file = "" }"#;
    check(script, "train.model.file", "the model has no file");
}

#[test]
fn data_are_checked() {
    for (value, shown) in [("0.0", "0"), ("1.0", "1"), ("-0.5", "-0.5"), ("nan", "NaN")] {
        out_of_range("train.data.validation.fraction", value, shown);
    }
    let folds = |text| [("data.validation", text)];
    let key = "train.data.validation.folds";
    refused(&folds("{ folds = 1, fold = 0 }"), key, "`train.data.validation.folds` is 1");
    let key = "train.data.validation.fold";
    refused(&folds("{ folds = 5, fold = 5 }"), key, "`train.data.validation.fold` is 5");
    out_of_range("train.data.shape", "[3, 0]", "0");
    out_of_range("train.data.scale", "0.0", "0");
    out_of_range("train.data.offset", "inf", "inf");
    for (key, value) in [("train", r#""""#), ("test", "[]"), ("validation", r#"["a", ""]"#)] {
        let changes = [(&*format!("data.{key}"), value)];
        let key = format!("train.data.{key}");
        refused(&changes, &key, &format!("`{key}` names no file"));
    }
    let made = r#"{ synthetic = "turbulence", samples = 0 }"#;
    let key = "train.data.train.samples";
    refused(&[("data.train", made)], key, "`train.data.train.samples` is 0");
}

#[test]
fn optimizers_are_checked() {
    let sgd = |text: &str| format!(r#"{{ kind = "sgd", lr = 0.1, {text} }}"#);
    let check = |optimizer: &str, key: &str, shown: &str| {
        let key = format!("train.optimizer.{key}");
        refused(&[("optimizer", optimizer)], &key, &format!("`{key}` is {shown}"));
    };
    for (lr, shown) in [("0.0", "0"), ("-0.1", "-0.1"), ("inf", "inf"), ("nan", "NaN")] {
        check(&format!(r#"{{ kind = "adam", lr = {lr} }}"#), "lr", shown);
    }
    check(&sgd("momentum = 1.0"), "momentum", "1");
    check(&sgd("dampening = -0.5"), "dampening", "-0.5");
    check(&sgd("weight_decay = -0.5"), "weight_decay", "-0.5");
    check(r#"{ kind = "adamw", betas = [0.9, 1.0] }"#, "betas", "1");
    check(r#"{ kind = "adam", eps = -1.0 }"#, "eps", "-1");
    check(r#"{ kind = "rmsprop", alpha = 1.0 }"#, "alpha", "1");
    check(r#"{ kind = "rmsprop", momentum = 1.5 }"#, "momentum", "1.5");
    for text in ["nesterov = true", "nesterov = true, momentum = 0.9, dampening = 0.1"] {
        refused(
            &[("optimizer", &sgd(text))],
            "train.optimizer.nesterov",
            "Nesterov's momentum needs `momentum` above 0 and no `dampening`",
        );
    }
}

#[test]
fn schedules_are_checked() {
    let check = |schedule: &str, key: &str, shown: &str| {
        let key = format!("train.schedule.{key}");
        refused(&[("schedule", schedule)], &key, &format!("`{key}` is {shown}"));
    };
    check(r#"{ kind = "step", every = 0 }"#, "every", "0");
    check(r#"{ kind = "step", every = 1, gamma = 0.0 }"#, "gamma", "0");
    check(r#"{ kind = "cosine", warmup = 10.0 }"#, "warmup", "10");
    check(r#"{ kind = "cosine", min = 0.1 }"#, "min", "0.1");
    check(r#"{ kind = "one_cycle", rise = 1.0 }"#, "rise", "1");
    check(r#"{ kind = "one_cycle", first_factor = 0.0 }"#, "first_factor", "0");
    check(r#"{ kind = "one_cycle", last_factor = inf }"#, "last_factor", "inf");
    check(r#"{ kind = "plateau", factor = 1.0 }"#, "factor", "1");
    check(r#"{ kind = "plateau", threshold = 1.0 }"#, "threshold", "1");
    check(r#"{ kind = "plateau", min = 1.0 }"#, "min", "1");
}

#[test]
fn stopping_is_checked() {
    refused(&[("stop", "{ patience = 0 }")], "train.stop.patience", "`train.stop.patience` is 0");
    let key = "train.stop.min_delta";
    refused(&[("stop", "{ min_delta = -1.0 }")], key, "`train.stop.min_delta` is -1");
    refused(
        &[("stop", "{ min_delta = 1.0, relative = true }")],
        key,
        "`min_delta = 1` is the whole of the best value or more",
    );
}

#[test]
fn metrics_fit_to_data_and_loss() {
    let name = "train.metric.name";
    let typo = r#"{ name = "val_los" }"#;
    refused(&[("metric", typo)], name, "there is no metric `val_los`");
    assert_eq!(
        config(&[("metric", typo)]).check().unwrap_err().hint.as_deref(),
        Some("did you mean `val_loss`?")
    );
    let accuracy = |name| format!(r#"{{ name = "{name}", direction = "max" }}"#);
    refused(
        &[("metric", &accuracy("val_accuracy"))],
        name,
        "the metric `val_accuracy` needs validation data, and there are none",
    );
    refused(
        &[("metric", &accuracy("train_accuracy")), ("loss", r#""mse""#)],
        name,
        "the metric `train_accuracy` needs classes, and the loss is of values",
    );
    let direction = "train.metric.direction";
    let less = r#"{ name = "train_accuracy" }"#;
    refused(&[("metric", less)], direction, "less `train_accuracy` would be better");
    let more = r#"{ name = "train_loss", direction = "max" }"#;
    refused(&[("metric", more)], direction, "more `train_loss` would be better");
}

#[test]
fn without_validation_the_training_loss_decides() {
    assert_eq!(config(&[]).metric().name, "train_loss");
    assert_eq!(config(&[("data.validation", r#""v.npz""#)]).metric().name, "val_loss");
    let own = config(&[("metric", r#"{ name = "train_accuracy", direction = "max" }"#)]);
    assert_eq!(own.metric(), own.metric);
}

#[test]
fn mixed_precision_in_16_bit_needs_a_gpu() {
    refused(
        &[("precision", r#""f16""#), ("device", r#""cpu""#)],
        "train.precision",
        "`f16` needs a GPU, and the device is the CPU",
    );
}

#[test]
fn all_faults_are_told_at_once() {
    let places: Vec<String> =
        config(&[("epochs", "0"), ("model.outputs", "0"), ("stop", "{ patience = 0 }")])
            .faults()
            .into_iter()
            .filter_map(|fault| fault.key)
            .collect();
    assert_eq!(places, ["train.epochs", "train.model.outputs", "train.stop.patience"]);
}

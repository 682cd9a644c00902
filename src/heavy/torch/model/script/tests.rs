//! TorchScript against the same training in PyTorch; the modules are those of `reference.py`.

use std::path::Path;

use hpcsweep::train::config;
use tch::{Device, Kind, Tensor};

use crate::torch::model::{Model, Named};
use crate::torch::optim::Optimizer;
use crate::torch::shim;
use crate::torch::testing::{assert_close, first, numbers, random_numbers, weighted};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/worker/scripts");

fn load(file: &str) -> Result<Model, hpcsweep::base::fault::Fault> {
    let config = config::Model::Script { file: file.into() };
    Model::build(&config, &[4], Device::Cpu, Kind::Double, 0, Path::new(FOLDER))
}

fn names(list: &[Named]) -> Vec<&str> {
    list.iter().map(|named| named.name.as_str()).collect()
}

fn all(list: &[Named]) -> impl Iterator<Item = &Tensor> {
    list.iter().map(|named| &named.tensor)
}

#[test]
fn a_script_is_trained_as_by_pytorch() {
    let _owner = random_numbers();
    let model = load("script.pt").unwrap();
    assert_eq!(
        names(model.parameters()),
        [
            "first.weight",
            "first.bias",
            "norm.weight",
            "norm.bias",
            "last.weight",
            "last.bias",
            "tied.bias"
        ]
    );
    assert_eq!(
        names(model.buffers()),
        ["frozen", "seen", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked"]
    );
    let config = config::Optimizer::Sgd {
        lr: 0.1,
        momentum: 0.9,
        dampening: 0.0,
        nesterov: false,
        weight_decay: 0.0,
    };
    let mut optimizer = Optimizer::new(&config, model.parameters()).unwrap();
    let (x, y) = (numbers(&[8, 4], Kind::Double), numbers(&[8, 3], Kind::Double));
    tch::manual_seed(5);
    let mut last = 0.0;
    for _ in 0..10 {
        for parameter in model.parameters() {
            shim::set_grad(&parameter.tensor, None).unwrap();
        }
        let loss = (model.forward(&x, true).unwrap() - &y).square().mean(Kind::Double);
        loss.backward();
        optimizer.step(0.1).unwrap();
        last = loss.double_value(&[]);
    }
    assert_close(&[last], &[0.20046118769250557]);
    // Dropout drew the same, batch normalisation followed the same, all in the same order.
    let sums = [weighted(all(model.parameters())), weighted(all(model.buffers()))];
    assert_close(&sums, &[35.64136658216633, 222.26639203665482]);
    let eval = |model: &Model| first(&model.forward(&x, false).unwrap(), 3);
    let expected = [-1.0034502760321073, -0.28316662600843256, 0.5597792343962389];
    assert_close(&eval(&model), &expected);

    // The file holds all of it, including the program.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("saved.pt");
    assert!(model.save_script(&path).unwrap());
    let saved = load(path.to_str().unwrap()).unwrap();
    assert_eq!(saved.weights().unwrap(), model.weights().unwrap());
    assert_close(&eval(&saved), &expected);
}

#[test]
fn a_model_that_cannot_be_trained_is_refused() {
    let _owner = random_numbers();
    let say = |file: &str| load(file).err().unwrap().to_string();
    assert_eq!(
        say("traced.pt"),
        format!(
            "the model was traced: its dropout or batch normalisation cannot tell training from \
             evaluation\n  {FOLDER}/traced.pt\nhint: save it by `torch.jit.script(model).save(file)` \
             instead of `torch.jit.trace`"
        )
    );
    let other = say("../reference.py");
    assert!(
        other.starts_with("the model cannot be loaded: libtorch: ")
            && other.ends_with("\nhint: save it by `torch.jit.script(model).save(file)`"),
        "{other}"
    );
    // Random numbers are drawn for built-in models alone.
    let built = config::Model::Mlp { hidden: vec![], outputs: 1, dropout: 0.0, batch_norm: false };
    let path = Path::new("");
    let built = Model::build(&built, &[4], Device::Cpu, Kind::Float, 0, path).unwrap();
    assert!(!built.save_script(Path::new("/nowhere/model.pt")).unwrap());
}

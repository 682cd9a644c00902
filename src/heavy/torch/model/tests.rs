//! Models against PyTorch's, bit by bit where both draw and number by number where both compute.

use std::path::Path;

use tch::{Device, Kind, Tensor};

use super::*;
use crate::torch::testing::{assert_close, crc, first, numbers, random_numbers};

/// What reference.py prints of one model.
struct Reference {
    crc: u32,
    count: usize,
    names: u32,
    next: f64,
    train: [f64; 3],
    eval: [f64; 3],
    buffers: f64,
}

fn build(config: &config::Model, sample: &[i64], kind: Kind, seed: i64) -> Model {
    Model::build(config, sample, Device::Cpu, kind, seed, Path::new("")).unwrap()
}

fn refuse(config: &config::Model, sample: &[i64]) -> String {
    let built = Model::build(config, sample, Device::Cpu, Kind::Float, 0, Path::new("/nowhere"));
    built.err().unwrap().to_string()
}

fn all(list: &[Named]) -> impl Iterator<Item = &Tensor> {
    list.iter().map(|named| &named.tensor)
}

fn compare(config: &config::Model, seed: i64, sample: &[i64], reference: &Reference) {
    let _owner = random_numbers();
    let model = build(config, sample, Kind::Float, seed);
    let next = Tensor::rand([1], (Kind::Float, Device::Cpu)).double_value(&[0]);
    let names: Vec<&str> = model.tensors().map(|named| named.name.as_str()).collect();
    assert_eq!(
        (crc(all(model.parameters())), all(model.parameters()).map(Tensor::numel).sum(), next),
        (reference.crc, reference.count, reference.next)
    );
    assert_eq!(crc32fast::hash(names.join(" ").as_bytes()), reference.names, "{names:?}");
    assert!(all(model.parameters()).all(Tensor::requires_grad));
    assert!(!all(model.buffers()).any(Tensor::requires_grad));

    // 64 bit: the same weights, converted.
    let model = build(config, sample, Kind::Double, seed);
    let x = numbers(&[&[2], sample].concat(), Kind::Double);
    tch::manual_seed(5);
    assert_close(&first(&model.forward(&x, true).unwrap(), 3), &reference.train);
    assert_close(&first(&model.forward(&x, false).unwrap(), 3), &reference.eval);
    let sum = |t: &Tensor| t.to_kind(Kind::Double).sum(Kind::Double).double_value(&[]);
    assert_close(&[all(model.buffers()).map(sum).sum()], &[reference.buffers]);
}

fn mlp(hidden: &[u64], outputs: u64, dropout: f64, batch_norm: bool) -> config::Model {
    config::Model::Mlp { hidden: hidden.to_vec(), outputs, dropout, batch_norm }
}

#[test]
fn mlp_is_pytorchs() {
    compare(
        &mlp(&[7, 5], 4, 0.1, true),
        3,
        &[3, 2, 2],
        &Reference {
            crc: 0x7a7572fe,
            count: 179,
            names: 0xcabd5697,
            next: 0.07190150022506714,
            train: [0.5387110043759809, -0.18207070992794355, 0.37597286653768486],
            eval: [0.47511483932539006, -0.11140784301129156, 0.4138561212936045],
            buffers: 12.890025242772685,
        },
    );
}

#[test]
fn cnn_is_pytorchs() {
    let outputs = [-0.01003074205846266, -0.021522731203914527, -0.02906409349429942];
    compare(
        &config::Model::Cnn { channels: vec![8, 16], outputs: 10, dropout: 0.0 },
        0,
        &[1, 28, 28],
        &Reference {
            crc: 0xd321a5b6,
            count: 9098,
            names: 0x3a4e3870,
            next: 0.7028110027313232,
            train: outputs,
            eval: outputs,
            buffers: 0.0,
        },
    );
}

#[test]
fn resnet18_is_torchvisions() {
    compare(
        &config::Model::Resnet18 { outputs: 10, width: 64 },
        1,
        &[3, 16, 16],
        &Reference {
            crc: 0x4cbc9134,
            count: 11173962,
            names: 0xcac6308a,
            next: 0.0032833218574523926,
            train: [-0.5259514048502465, 0.32452938998033654, -0.6296006028448187],
            eval: [-0.034963289224114485, -0.05832822342757485, -0.09403626686765854],
            buffers: 4696.684682961947,
        },
    );
    compare(
        &config::Model::Resnet18 { outputs: 3, width: 8 },
        1,
        &[1, 8, 8],
        &Reference {
            crc: 0x84fde516,
            count: 175803,
            names: 0xcac6308a,
            next: 0.2570997476577759,
            train: [-0.6477974449957851, -1.8312071045555787, -0.19805670438125744],
            eval: [-0.06497205211638604, -0.007916954502935877, 0.04352209709664298],
            buffers: 595.9754834691984,
        },
    );
}

#[test]
fn cnn3d_is_sapsans() {
    let outputs = [-0.03508190893365982, -0.11121561177653047, -0.07892866376738508];
    compare(
        &config::Model::Cnn3d { outputs: None },
        2,
        &[3, 16, 16, 16],
        &Reference {
            crc: 0xb7659fa5,
            count: 308544,
            names: 0x68c388ea,
            next: 0.7699880003929138,
            train: outputs,
            eval: outputs,
            buffers: 0.0,
        },
    );
}

#[test]
fn what_does_not_fit_is_said_at_once() {
    let _owner = random_numbers();
    let cnn = config::Model::Cnn { channels: vec![4, 4, 4], outputs: 2, dropout: 0.0 };
    assert_eq!(
        refuse(&cnn, &[1, 7, 9]),
        "images are too small for 3 convolutions, each of which halves them"
    );
    assert_eq!(
        refuse(&cnn, &[49]),
        "model `cnn` needs samples [C, H, W], but these are [49]\nhint: set `shape` in [train.data]"
    );
    assert_eq!(
        refuse(&config::Model::Cnn3d { outputs: None }, &[3, 16, 65, 66]),
        "model `cnn3d` needs cubes with edges of 2 to 65 points, not 16x65x66"
    );
    assert_eq!(refuse(&mlp(&[0], 1, 0.0, false), &[3]), "a layer of shape [0, 3] has no weights");
    assert_eq!(
        refuse(&mlp(&[2], 1, 1.0, false), &[3]),
        "`dropout = 1` is not a probability below 1"
    );
    assert_eq!(
        refuse(&config::Model::Script { file: "model.pt".into() }, &[3]),
        "the model's file does not exist\n  /nowhere/model.pt"
    );
    let model = build(&mlp(&[2], 1, 0.0, true), &[3], Kind::Float, 0);
    let one = numbers(&[1, 3], Kind::Float);
    assert_eq!(
        model.forward(&one, true).unwrap_err().sentence,
        "batch normalisation cannot learn from a batch of one sample"
    );
    assert!(model.forward(&one, false).is_ok());
}

#[test]
fn weights_go_from_one_model_to_another() {
    let _owner = random_numbers();
    let config = mlp(&[4], 2, 0.0, true);
    let first = build(&config, &[3], Kind::Double, 1);
    let _ = first.forward(&numbers(&[5, 3], Kind::Double), true).unwrap();
    let second = build(&config, &[3], Kind::Double, 2);
    second.load_weights(&first.weights().unwrap()).unwrap();
    assert_eq!(crc(second.tensors().map(|n| &n.tensor)), crc(first.tensors().map(|n| &n.tensor)));
    assert!(all(second.parameters()).all(Tensor::requires_grad));

    let before = crc(all(second.parameters()));
    let say = |config: &config::Model| {
        let other = build(config, &[3], Kind::Double, 1);
        second.load_weights(&other.weights().unwrap()).unwrap_err().sentence
    };
    assert_eq!(say(&mlp(&[4], 2, 0.0, false)), "the weights lack `layers.1.weight`");
    assert_eq!(
        say(&mlp(&[5], 2, 0.0, true)),
        "`layers.0.weight` of the weights is [5, 3], but [4, 3] in the model"
    );
    assert_eq!(
        say(&mlp(&[4, 4], 2, 0.0, true)),
        "`layers.3.weight` of the weights is [4, 4], but [2, 4] in the model"
    );
    let more = build(&mlp(&[4, 2, 2], 2, 0.0, true), &[3], Kind::Double, 1);
    let fault = second.load_weights(&more.weights().unwrap()).unwrap_err();
    assert_eq!(fault.sentence, "the weights have `layers.4.bias`, the model has not");
    assert_eq!(crc(all(second.parameters())), before);
}

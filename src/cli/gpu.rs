//! `hpcsweep gpu`: which GPUs this host has, and the best one to take.

use anyhow::Result;
use clap::builder::RangedU64ValueParser;
use serde_json::json;

use super::Context;
use super::out::aligned;
use crate::base::fault::Fault;
use crate::base::host::gpus::holds::{Holder, Holds};
use crate::base::host::gpus::{self, Device};
use crate::base::host::process;
use crate::base::units;
use crate::cluster::devices::ORDER;
use crate::cluster::gpu::{self, Choice, Naming, Wants};

/// Show the GPUs of this host, or choose the best ones and hold them for a program
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Show every GPU and MIG device: memory, utilisation, programs, who holds it
    List {
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
    /// Choose the best GPU and print it as a value of CUDA_VISIBLE_DEVICES, or run a command with it
    ///
    /// Fewest programs first, then least utilised, then least memory in use; only of those that
    /// CUDA_VISIBLE_DEVICES and the scheduler allow, and that no other call of this verb by this user
    /// holds. With a command, the GPU is held while it runs. Exit code 4 when there is none.
    Best(Best),
}

#[derive(Debug, clap::Args)]
struct Best {
    /// How many
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = RangedU64ValueParser::<u64>::new().range(1..))]
    count: u64,
    /// Memory that must be free on each: 500M, 20G
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    min_free_memory: Option<u64>,
    /// Percent of utilisation that each may have at most
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=100))]
    max_utilization: Option<u32>,
    /// Only a GPU on which no program computes
    #[arg(long)]
    idle: bool,
    /// Name GPUs by index, not by UUID
    #[arg(long)]
    index: bool,
    /// How many may hold a GPU together
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    share: u32,
    /// Hold it for so many seconds, time for a program to start; 0 holds nothing
    #[arg(long = "for", value_name = "SECONDS", default_value_t = 60, conflicts_with = "command")]
    seconds: u64,
    /// Hold it while this process lives: `$$` in a script
    #[arg(long = "while", value_name = "PID", conflicts_with_all = ["seconds", "command"])]
    process: Option<i32>,
    /// Write JSON
    #[arg(long, conflicts_with = "command")]
    json: bool,
    /// Become this command
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

fn memory(text: &str) -> Result<u64, String> {
    let mib = units::parse_memory(text).ok_or(units::MEMORY_FORMS)?;
    Ok(mib << 20)
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8> {
    let devices = gpus::machine(&context.vars).map_err(|why| gpu::none_here(&why))?.devices;
    match &args.verb {
        Verb::List { json } => list(&devices, *json, context),
        Verb::Best(args) => best(&devices, args, context),
    }
}

fn list(devices: &[Device], as_json: bool, context: &Context) -> Result<u8> {
    if devices.is_empty() {
        return Err(Fault::machine("there is no GPU on this host").into());
    }
    let allowed = gpu::allowed(devices, &context.vars).ok();
    let holds = Holds::open(&context.vars);
    let nobody = Holder::default();
    let held = holds.map(|holds| gpu::held(devices, &holds, &nobody)).unwrap_or_default();
    let holder = |device: &Device| held.get(&device.uuid).map(gpu::Held::words);
    // Unknown where the scheduler's words cannot be understood.
    let mine = |device: &Device| {
        let allowed = allowed.as_ref()?;
        Some(allowed.as_ref().is_none_or(|all| all.contains(&device.uuid)))
    };
    if as_json {
        let all = devices.iter().map(|device| {
            let mut row = serde_json::to_value(device)?;
            row["allowed"] = mine(device).into();
            row["reserved"] = holder(device).into();
            Ok(row)
        });
        let all = all.collect::<Result<Vec<_>>>()?;
        context.out.json(&all)?;
        return Ok(0);
    }
    let head =
        ["gpu", "name", "MiB used", "MiB", "util %", "programs", "allowed", "reserved", "uuid"];
    let text = |n: Option<u64>| n.map_or_else(|| "?".to_owned(), |n| n.to_string());
    let rows: Vec<Vec<String>> = devices
        .iter()
        .map(|device| {
            let name = match &device.trouble {
                Some(trouble) => trouble.clone(),
                None if device.mig_enabled => format!("{} (divided)", device.name),
                None => device.name.clone(),
            };
            vec![
                device.index.to_string(),
                name,
                text(device.memory_used.map(|bytes| bytes >> 20)),
                text(device.memory_total.map(|bytes| bytes >> 20)),
                text(device.utilization.map(u64::from)),
                text(device.processes.as_ref().map(|all| all.len() as u64)),
                mine(device).map_or("?", |mine| if mine { "yes" } else { "no" }).to_owned(),
                holder(device).unwrap_or_default(),
                device.uuid.clone(),
            ]
        })
        .collect();
    context.out.page(&aligned(&head.map(str::to_owned), &rows));
    Ok(0)
}

fn best(devices: &[Device], args: &Best, context: &Context) -> Result<u8> {
    let wants = Wants {
        count: usize::try_from(args.count)?,
        min_free_memory: args.min_free_memory,
        max_utilization: args.max_utilization,
        idle: args.idle,
        among: gpu::allowed(devices, &context.vars)?,
    };
    let share = args.share;
    let holder = match args.process {
        _ if !args.command.is_empty() => Some(Holder::own()?),
        Some(pid) => Some(Holder::process(pid)?),
        None => (args.seconds > 0).then(|| Holder::seconds(args.seconds as f64)),
    };
    let chosen = match holder.map(|holder| holder.sharing(share)) {
        Some(holder) => gpu::acquire(devices, &wants, &Holds::open(&context.vars)?, &holder)?,
        None => {
            let (holds, nobody) = (Holds::open(&context.vars), Holder::default().sharing(share));
            let held = holds.map(|holds| gpu::held(devices, &holds, &nobody)).unwrap_or_default();
            gpu::best(devices, &wants, &held)?
        }
    };
    for choice in &chosen {
        say_if_busy(choice, context);
    }
    let naming = if args.index { Naming::Index } else { Naming::Uuid };
    let value = gpu::visible_value(&chosen, naming);
    if args.command.is_empty() {
        if args.json {
            let json = json!({ "cuda_visible_devices": value, "devices": chosen });
            context.out.json(&json)?;
        } else {
            context.out.data(&value);
        }
        return Ok(0);
    }
    let mut vars = vec![("CUDA_VISIBLE_DEVICES", value.as_str())];
    // Indices are NVML's.
    if args.index || !context.vars.contains_key(ORDER.0) {
        vars.push(ORDER);
    }
    Err(process::become_program(&args.command, &vars).into())
}

fn say_if_busy(choice: &Choice, context: &Context) {
    if let Some(n) = choice.processes.filter(|n| *n > 0) {
        let programs = crate::base::words::count(n as u64, "program");
        let say = format!("GPU {} is the best, though in use by {programs}", choice.index);
        context.out.say(&say);
    }
}

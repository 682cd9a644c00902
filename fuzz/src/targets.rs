//! Every reader: its name, what it does with any bytes, and inputs to begin with.
//!
//! A seed is a text, or `@` and a pattern of files seen from the folder of the sources. Targets that choose a file of a tree by
//! their first byte have `@NUMBER@pattern`.

use crate::{data, schedulers, text, tree, wire};

/// A reader.
pub(crate) struct Target {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&[u8]),
    pub(crate) seeds: &'static [&'static str],
}

const fn target(name: &'static str, run: fn(&[u8]), seeds: &'static [&'static str]) -> Target {
    Target { name, run, seeds }
}

#[rustfmt::skip]
pub(crate) const TARGETS: &[Target] = &[
    target("plan", text::plans, &["@examples/*.toml", "@templates/project/*/*.toml", PLAN]),
    target("trial-list", text::trial_lists, &["\0[{\"lr\": 0.1, \"task_id\": 1}, {\"lr\": null, \"a\": {\"b\": [1, \"x\"]}}]", "\x01lr,name,task_id\n0.1,\"a,b\",1\n,c,2\n"]),
    target("site", text::profiles, &["@site/*.toml", "@site/site.toml.example"]),
    target("template", text::templates, &["@templates/*.tera", "{% for d in directives %}#SBATCH {{ d | directive }}\n{% endfor %}{{ worker | words }}{! c !}"]),
    target("host-list", text::host_lists, &["n[1-4,07-09],m1", "n1*2,n2", "2(x3),1", "a[1-2]b[01-02]", "n1"]),
    target("id-set", text::id_sets, &["0-9:2,14%3", "12_[3-4%2,8]", "12_7.batch", "12+1", "12_[0-10...]", "0,2,4,6,9"]),
    target("units", text::units_of, &["1-02:03:04", "90", "1:30", "12h", "1d12h30m", "2G", "1.5TiB", "512", "100MB"]),
    target("environment", text::environments, &[SLURM_STEP, OPEN_MPI, "PBS_JOBID=5.s\nPBS_NODENUM=0\n", "RANK=0\nWORLD_SIZE=2\nTORCHELASTIC_RUN_ID=x\nLOCAL_RANK=0\n", "PMI_RANK=1\nPMI_SIZE=2\nMPI_LOCALRANKID=0\nCUDA_VISIBLE_DEVICES=0,GPU-a\n"]),
    target("slurm", schedulers::slurm, &[SQUEUE, "123;alpha\n", "Submitted batch job 77\n", "1-02:03:04\n", CONFIG, PARTITION, "dev|dev||300\ndev|big|long|50\n", "squeue: unrecognized option '--array-unique'\n", "slurm_load_jobs error: Invalid job id specified\n"]),
    target("pbs", schedulers::pbs, &["@tests/cases/pbs/*", "1234[].pbs-head.site\n", "qsub: would exceed queue's generic per-user limit\n", "    Resource_List.walltime = 01:00:00\n"]),
    target("launcher", schedulers::launchers, &["mpirun (Open MPI) 4.1.4\n", "mpirun (PRRTE) 3.0.8\n", "HYDRA build details:\n    Version:      4.0.2\n", "mca:plm:tm:version:5.0\n", "n1.site\nn1.site\nn2\n", "-x -l user n1 orted -mca a b"]),
    target("table", tree::tables, &["@0@tests/cases/tree-2/*/trials/*.jsonl", "@1@tests/cases/tree-2/*/trials/*.json", "@2@tests/cases/tree-2/*/trials/*.idx", "@3@tests/cases/tree-2/*/trials/*.keys", "@0@tests/cases/tree-1/*/trials/*.jsonl"]),
    target("record", tree::records, &["@tests/cases/tree-*/*/records/*/*.jsonl", SKIP]),
    target("index", tree::indexes, &["\0\0\0", "\x01\x01k\x07\0", "\0\0\x01\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x01\0\0\0\0\0\0\x01"]),
    target("bundle", tree::bundles, &["@tests/cases/tree-*/*/agents/*/*.jsonl"]),
    target("ledger", tree::ledgers, &["@tests/cases/tree-*/*/claims/*/*.json", LEDGER]),
    target("journal", tree::journals, &["@tests/cases/tree-*/*/journal/*.jsonl", JOURNAL]),
    target("wave", tree::waves_of, &["@0@tests/cases/tree-*/*/waves/*.json", "@1@tests/cases/tree-*/*/waves/*.map"]),
    target("deck", tree::decks, &["@0@tests/cases/tree-*/*/pull/*.json", "@1@tests/cases/tree-*/*/pull/*.map", "@2@tests/cases/tree-*/*/pull/*.units"]),
    target("tree", tree::trees, &["\0\0\0\x10{\"format\":2}", "\x01\x03\0\x20{\"event\":\"take\",\"units\":[]}", "\0\x06\0\x09{\"a\": 1}\n\x08\0\x03abc"]),
    target("damage", tree::damage, &["\0\x01\0\x10\x03", "\x01\x05\0\x20\x01", "\0\x43\0\x40\0", "\x01\x49\0\x40\0\x02\0\0\x05"]),
    target("metrics", wire::metrics, &["{\"step\": 1, \"loss\": -nan(0x8), \"x\": [1.5e3, .5, +5, 1.0D+05]}\n{\"a\": 1.#QNAN, \"b\": \"n\\\"an\"}\n", "0.5", "[1, NaN]"]),
    target("metric-file", wire::metric_files, &["{\"acc\": 0.5, \"loss\": NaN}", "[{\"a\": 1}, 2]", "0.25\n", "epoch,acc\n1,0.5\n2,\n", "a\tb\n\"1\"\tnan\n"]),
    target("sync-request", wire::requests, &[HELLO, GATHER, GATHER_MAP, REDUCE, "\x0e\0\0\0{\"op\":\"hello\"}"]),
    target("sync-answer", wire::answers, &[ANSWER, "{\"ok\":false,\"error\":\"a rank\"}\n", "{\"ok\":true,\"rank\":0,\"world\":2,\"version\":\"1\"}\n"]),
    target("meeting", wire::meeting, &[UP, DOWN, "{\"token\":\"abc\",\"port\":4711,\"addrs\":[\"127.0.0.1\",\"::1\"]}\n"]),
    target("web-request", wire::web, &["GET /a/data?b HTTP/1.1\r\nHost: localhost:80\r\nIf-None-Match: \"1\"\r\n\r\n", "POST / HTTP/1.0\r\n\r\n"]),
    target("npy", data::npy, &["@tests/cases/data/*.npy"]),
    target("npz", data::npz, &["@tests/cases/data/*.npz"]),
    target("safetensors", data::safetensors, &["@tests/cases/data/*.safetensors"]),
    target("idx", data::idx, &["\0\0\x08\x03\0\0\0\x02\0\0\0\x02\0\0\0\x01abcd", "\0\0\x0b\x01\0\0\0\x02\0\x01\0\x02", "@tests/cases/data/images.idx.gz"]),
];

const PLAN: &str = "version = 1\n[sweep]\nname = \"s\"\nseed = 3\n[run]\ncommand = [\"a\", \"{{ lr | upper }}\", \"{{ trial.id }}\"]\n\
    env.A = \"{{ sweep.name }}\"\n[defaults]\ntask_id = \"{{ n }}\"\n[resources]\nnodes = 1\nwalltime = \"1h\"\nmemory = \"2G\"\n\
    [grid]\nlr = { log = [1e-4, 1e-1, 3] }\nn = { range = [0, 4] }\n[zip]\na = [1, 2]\nb = [\"x\", \"y\"]\n\
    [sample]\ncount = 2\nu = { uniform = [0.0, 1.0] }\nc = { choice = [1, 2] }\n[[exclude]]\nn = 1\n[replicates]\nseed = 2\n";
const SLURM_STEP: &str = "SLURM_JOB_ID=5\nSLURM_STEP_ID=0\nSLURM_PROCID=1\nSLURM_NTASKS=4\nSLURM_LOCALID=1\nSLURM_NODEID=0\n\
    SLURM_NNODES=2\nSLURM_STEP_TASKS_PER_NODE=2(x2)\nSLURM_STEP_NODELIST=n[1-2]\nSLURM_JOB_NODELIST=n[1-2]\n";
const OPEN_MPI: &str = "OMPI_COMM_WORLD_RANK=0\nOMPI_COMM_WORLD_SIZE=2\nOMPI_COMM_WORLD_LOCAL_RANK=0\nOMPI_COMM_WORLD_LOCAL_SIZE=1\n";
const SQUEUE: &str = "12_[4-1000%8]|PENDING|Resources|demo\n12_3|RUNNING|None|demo\n12_2|CANCELLED by 1001|None|demo\n13_[0,5]|HIBERNATING|x|demo\n";
const CONFIG: &str = "MaxArraySize            = 1001\nMaxJobCount             = 10000\nSchedulerParameters     = bf_interval=2,max_array_tasks=500\n\
    AccountingStorageType   = accounting_storage/none\nSLURM_VERSION           = 22.05.8\nPMIxCollFence           = ring\n";
const PARTITION: &str = "PartitionName=main AllowGroups=ALL Default=YES MaxTime=1-00:00:00 DefaultTime=NONE MaxNodes=UNLIMITED State=UP Nodes=n[1-4]\n";
const SKIP: &str = "{\"event\":\"skip\",\"trial\":0,\"time\":1.5,\"job\":null,\"reason\":\"r\"}\n\
    {\"event\":\"stop\",\"trial\":0,\"attempt\":1,\"time\":1.5,\"state\":\"interrupted\",\"reason\":\"r\"}\n";
const LEDGER: &str = "{\"event\":\"join\",\"agent\":\"a\",\"nonce\":\"1\",\"host\":\"h\",\"slots\":2}\n{\"event\":\"take\",\"agent\":\"a\",\"nonce\":\"2\",\"units\":[{\"from\":0,\"count\":4}],\"done\":0,\"busy_s\":0.0}\n\
    {\"event\":\"back\",\"agent\":\"a\",\"nonce\":\"3\",\"units\":[{\"from\":1,\"link\":1,\"tries\":1}]}\n{\"event\":\"copy\",\"agent\":\"b\",\"nonce\":\"1\",\"of\":\"a\",\"trial\":0,\"size\":9}\n\
    {\"event\":\"won\",\"agent\":\"b\",\"nonce\":\"2\",\"trial\":0,\"attempt\":1}\n{\"event\":\"expire\",\"agent\":\"a\",\"nonce\":\"3\",\"by\":\"b\",\"size\":5,\"units\":[{\"from\":0}]}\n\
    {\"event\":\"hold\",\"agent\":\"b\",\"nonce\":\"4\",\"by\":\"u\"}\n{\"event\":\"drop\",\"agent\":\"b\",\"nonce\":\"5\",\"units\":[{\"from\":3}]}\n{\"event\":\"uncopy\",\"agent\":\"b\",\"nonce\":\"6\",\"trial\":0}\n";
const JOURNAL: &str = "{\"event\":\"refused\",\"array\":1,\"token\":\"t\",\"time\":1.0,\"reason\":\"w\"}\n{\"event\":\"released\",\"array\":1,\"time\":1.0}\n\
    {\"event\":\"cancelled\",\"array\":1,\"time\":1.0,\"trials\":\"0-3\"}\n";
const HELLO: &str = "{\"op\":\"hello\"}\n";
const GATHER: &str = "{\"op\":\"gather\",\"flags\":{\"concat\":true},\"bytes\":16,\"items\":[{\"key\":[],\"form\":\"array\",\"dtype\":\"float64\",\"shape\":[2],\"bytes\":16}]}\n0123456789abcdef";
const GATHER_MAP: &str = "{\"op\":\"gather_map\",\"bytes\":9,\"items\":[{\"key\":[\"a\",\"b\"],\"form\":\"scalar\",\"dtype\":\"float64\",\"shape\":[],\"bytes\":8},\
    {\"key\":[\"c\"],\"form\":\"list\",\"dtype\":\"bool\",\"shape\":[1],\"bytes\":1},{\"key\":[\"d\"],\"error\":\"no number\"}]}\n012345678";
const REDUCE: &str = "{\"op\":\"reduce\",\"how\":\"mean\",\"nan\":\"skip\",\"bytes\":8,\"items\":[{\"key\":[\"a\"],\"form\":\"scalar\",\"dtype\":\"float64\",\"shape\":[],\"bytes\":8,\"weight\":2.0}]}\n01234567";
const ANSWER: &str = "{\"ok\":true,\"joined\":true,\"bytes\":8,\"items\":[{\"key\":[],\"form\":\"scalar\",\"dtype\":\"float64\",\"shape\":[],\"bytes\":8}]}\n01234567";
const UP: &str = "{\"say\":\"hello\",\"token\":\"t\",\"rank\":1,\"world\":2,\"host\":\"n1\",\"node\":\"n1\"}\n{\"say\":\"line\",\"text\":\"a\"}\n\
    {\"say\":\"metrics\",\"rows\":[{\"a\":1}]}\n{\"say\":\"ended\",\"code\":143,\"signal\":15,\"stop\":\"rank0\",\"reason\":null,\"ago_s\":0.5}\n{\"say\":\"broken\",\"reason\":\"r\"}\n";
const DOWN: &str = "{\"say\":\"begin\",\"attempt\":1,\"addr\":\"127.0.0.1\",\"port\":9,\"hosts\":[[\"n1\",2]]}\n{\"say\":\"stop\"}\n{\"say\":\"leave\",\"code\":1}\n{\"say\":\"refused\",\"reason\":\"r\"}\n";

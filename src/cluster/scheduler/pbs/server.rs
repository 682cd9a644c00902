//! The attributes of a PBS server and its queues: `qstat -Bf` and `qstat -Qf` (pbs_server_attributes(7B),
//! pbs_queue_attributes(7B)).

use serde_json::Value;

use super::json;
use crate::base::units;
use crate::base::words::count;

/// The most elements that may wait or run; `None` where nothing limits them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MaxQueued {
    /// Those of this user.
    pub own: Option<u64>,
    /// Those of all users together.
    pub all: Option<u64>,
}

impl MaxQueued {
    /// The most elements that this user may have if nobody else has any.
    pub fn least(self) -> Option<u64> {
        self.own.into_iter().chain(self.all).min()
    }
}

/// A server's limits and defaults; `None` where it sets none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Server {
    /// Its version, as `23.06.06`; empty if it does not tell it.
    pub version: String,
    /// The queue of jobs that name none.
    pub default_queue: Option<String>,
    /// Most elements of an array.
    pub max_array_size: Option<u64>,
    /// Whether ended jobs can be asked for.
    pub history: bool,
    /// For how many seconds, where that is not the usual two weeks.
    pub(crate) history_s: Option<u64>,
    /// Most elements that may be queued.
    pub max_queued: MaxQueued,
    /// Longest walltime of a job.
    pub max_walltime_s: Option<u64>,
}

/// A queue's limits; `None` where it sets none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Queue {
    /// The name of the queue.
    pub name: String,
    /// Whether it hands jobs on to others; these.
    pub(crate) destinations: Option<Vec<String>>,
    /// Most elements of an array.
    pub(crate) max_array_size: Option<u64>,
    /// Most elements that may be in it.
    pub max_queued: MaxQueued,
    /// Longest walltime of a job.
    pub max_walltime_s: Option<u64>,
    /// Whether it takes jobs.
    pub enabled: bool,
    /// Whether its jobs are run.
    pub started: bool,
    /// Whether this user may not use it.
    pub is_closed_to_us: bool,
    /// The fewest and the most nodes of a job, and the same for its cores.
    pub(crate) nodes: Bounds,
    pub(crate) cores: Bounds,
}

/// The least and the most of a resource that a queue takes a job for.
pub(crate) type Bounds = (Option<u64>, Option<u64>);

impl Queue {
    /// Why it does not take a job of so many nodes and cores; `None` if it does.
    pub(crate) fn refusal(&self, nodes: u64, cores: u64) -> Option<String> {
        let of = |asked: u64, (least, most): Bounds, noun: &str| {
            let bound =
                |how: &str, n: u64| format!("`{}` takes {how} {}", self.name, count(n, noun));
            let below = least.filter(|n| asked < *n).map(|n| bound("at least", n));
            below.or_else(|| most.filter(|n| asked > *n).map(|n| bound("at most", n)))
        };
        of(nodes, self.nodes, "node").or_else(|| of(cores, self.cores, "core"))
    }
}

/// The queues in which jobs of the queue of this name may run; none where one of them is not known here.
pub(crate) fn ends<'a>(queues: &'a [Queue], name: &'a str) -> Vec<&'a Queue> {
    let find = |name: &str| queues.iter().find(|queue| queue.name == name);
    let Some(queue) = find(name) else { return Vec::new() };
    let Some(names) = &queue.destinations else { return vec![queue] };
    let all: Option<Vec<&Queue>> = names.iter().map(|name| find(name)).collect();
    let mut all = all.unwrap_or_default();
    all.retain(|queue| queue.enabled && !queue.is_closed_to_us);
    if all.iter().any(|queue| queue.destinations.is_some()) { Vec::new() } else { all }
}

/// Reads `qstat -Bf -F json`; `user` is who asks.
///
/// # Errors
/// When it is not the answer of a PBS server.
pub fn server(stdout: &str, user: &str) -> Result<Server, String> {
    let answer = json::parse(stdout)?;
    let (_, node) = json::members(&answer, "Server").next().ok_or("it names no server")?;
    let version = json::text(node, "pbs_version").or_else(|| json::text(&answer, "pbs_version"));
    Ok(Server {
        version: version.unwrap_or_default(),
        default_queue: json::text(node, "default_queue"),
        max_array_size: positive(node, "max_array_size"),
        history: is(node, "job_history_enable"),
        history_s: json::text(node, "job_history_duration").and_then(|text| walltime(&text)),
        max_queued: max_queued(node, user),
        max_walltime_s: max_walltime(node),
    })
}

/// Reads `qstat -Qf -F json`.
///
/// # Errors
/// When it is not the answer of a PBS server.
pub fn queues(stdout: &str, user: &str) -> Result<Vec<Queue>, String> {
    let answer = json::parse(stdout)?;
    let queue = |(name, node): (&String, &Value)| {
        let destinations = json::text(node, "route_destinations").map(|names| {
            let local = |name: &str| name.trim().split('@').next().unwrap_or_default().to_owned();
            names.split(',').map(local).collect()
        });
        let users = json::text(node, "acl_users").unwrap_or_default();
        let allows = |entry: &str| {
            let name = entry.trim().trim_start_matches('+').split('@').next().unwrap_or_default();
            name == user || name == "*"
        };
        Queue {
            name: name.clone(),
            destinations: destinations.filter(|_| node["queue_type"] == "Route"),
            max_array_size: positive(node, "max_array_size"),
            max_queued: max_queued(node, user),
            max_walltime_s: max_walltime(node),
            enabled: is(node, "enabled"),
            started: is(node, "started"),
            is_closed_to_us: is(node, "acl_user_enable") && !users.split(',').any(allows),
            nodes: bounds(node, "nodect"),
            cores: bounds(node, "ncpus"),
        }
    };
    Ok(json::members(&answer, "Queue").map(queue).collect())
}

fn is(node: &Value, name: &str) -> bool {
    json::text(node, name).as_deref() == Some("True")
}

fn positive(node: &Value, name: &str) -> Option<u64> {
    u64::try_from(json::number(node, name)?).ok().filter(|&n| n > 0)
}

fn bounds(node: &Value, resource: &str) -> Bounds {
    let of = |attribute: &str| positive(node.get(attribute)?, resource);
    (of("resources_min"), of("resources_max"))
}

fn max_walltime(node: &Value) -> Option<u64> {
    walltime(&json::text(node.get("resources_max")?, "walltime")?)
}

/// PBS's `HH:MM:SS`, or seconds.
fn walltime(text: &str) -> Option<u64> {
    text.parse().ok().or_else(|| units::parse_walltime(text))
}

/// The limits that bind this user: `[u:name=N]`, else `[u:PBS_GENERIC=N]`; and `[o:PBS_ALL=N]`. Those of groups and projects
/// are left to the server: users cannot ask it for the group of a job.
fn max_queued(node: &Value, user: &str) -> MaxQueued {
    let text = json::text(node, "max_queued").unwrap_or_default();
    let item = |item: &str| {
        let item = item.replace(['[', ']', '"'], "");
        let (who, n) = item.trim().split_once('=')?;
        Some((who.to_owned(), n.parse().ok()?))
    };
    let all: Vec<(String, u64)> = text.split(',').filter_map(item).collect();
    let of = |who: String| all.iter().find(|(name, _)| *name == who).map(|(_, n)| *n);
    let own = of(format!("u:{user}")).or_else(|| of("u:PBS_GENERIC".to_owned()));
    MaxQueued { own, all: of("o:PBS_ALL".to_owned()) }
}

impl Server {
    /// Whether PBS knows an ended job for at least a day, so that another job can wait for it. PBS deletes jobs that
    /// depend on one that it has forgotten.
    pub fn keeps_jobs(&self) -> bool {
        self.history && self.history_s.is_none_or(|s| s >= 86_400)
    }

    /// Whether it understands `%N` behind the range of an array: since version 22.05.
    pub fn can_throttle(&self) -> bool {
        can_throttle(&self.version)
    }
}

/// Whether PBS of this version understands `-J 0-9%2`. PBS Professional counts its versions by the year too
/// (2022.1).
pub(crate) fn can_throttle(version: &str) -> bool {
    let first: String = version.chars().take_while(char::is_ascii_digit).collect();
    first.parse::<u32>().is_ok_and(|n| (22..100).contains(&n) || n >= 2022)
}

/// What an array meets on its way through a queue: the limits of the queue itself, and of the kindest of the
/// queues it hands jobs on to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Way {
    /// Most elements of an array.
    pub max_array_size: Option<u64>,
    /// Most elements of this user in the queue.
    pub max_queued: Option<u64>,
    /// Longest walltime of a job, seconds.
    pub max_walltime_s: Option<u64>,
    /// Most elements that an array may have, or be throttled to, so as to be handed on.
    pub width: Option<u64>,
}

/// The way through a queue of this name.
pub fn way(server: &Server, queues: &[Queue], name: &str) -> Way {
    let find = |name: &str| queues.iter().find(|queue| queue.name == name);
    let least = |a: Option<u64>, b: Option<u64>| a.into_iter().chain(b).min();
    let Some(queue) = find(name) else { return Way::default() };
    let mut way = Way {
        max_array_size: least(server.max_array_size, queue.max_array_size),
        max_queued: least(server.max_queued.least(), queue.max_queued.least()),
        max_walltime_s: least(server.max_walltime_s, queue.max_walltime_s),
        width: None,
    };
    if let Some(names) = &queue.destinations {
        let open: Vec<&Queue> = names
            .iter()
            .filter_map(|name| find(name))
            .filter(|queue| queue.enabled && !queue.is_closed_to_us)
            .collect();
        // The kindest destination decides; one without a limit takes everything.
        let most = |of: fn(&Queue) -> Option<u64>| -> Option<u64> {
            open.iter().map(|queue| of(queue)).collect::<Option<Vec<u64>>>()?.into_iter().max()
        };
        way.max_array_size = least(way.max_array_size, most(|q| q.max_array_size));
        way.max_walltime_s = least(way.max_walltime_s, most(|q| q.max_walltime_s));
        way.width = most(|q| q.max_queued.least());
    }
    way
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: &str = r#"{"pbs_version": "23.06.06", "Server": {"pbshead": {
        "max_queued": "[g:user1=60]", "max_queued": "[o:PBS_ALL=300]",
        "max_queued": "[u:PBS_GENERIC=100]", "max_queued": "[u:user1=50]",
        "default_queue": "workq", "resources_max": {"ncpus": 32, "walltime": "48:00:00"},
        "max_array_size": 5000, "pbs_version": "23.06.06", "job_history_enable": "True"}}}"#;

    const QUEUES: &str = r#"{"Queue": {
        "workq": {"queue_type": "Execution", "enabled": "True", "started": "True"},
        "small": {"queue_type": "Execution", "resources_max": {"walltime": "01:00:00"},
            "max_array_size": 4, "enabled": "True", "started": "True",
            "max_queued": "[o:PBS_ALL=12],[u:PBS_GENERIC=6]"},
        "acl": {"queue_type": "Execution", "acl_user_enable": "True", "acl_users": "user2,user3",
            "enabled": "True", "started": "False"},
        "route": {"queue_type": "Route", "route_destinations": "small,acl", "enabled": "True",
            "started": "True"},
        "route2": {"queue_type": "Route", "max_array_size": 100, "route_destinations": "small,workq@s",
            "enabled": "True", "started": "True"}}}"#;

    #[test]
    fn limits_are_those_that_bind_the_user() {
        let of = |user| server(SERVER, user).unwrap();
        assert_eq!(
            of("user1"),
            Server {
                version: "23.06.06".into(),
                default_queue: Some("workq".into()),
                max_array_size: Some(5000),
                history: true,
                history_s: None,
                max_queued: MaxQueued { own: Some(50), all: Some(300) },
                max_walltime_s: Some(48 * 3600),
            }
        );
        assert_eq!(of("other").max_queued.least(), Some(100));
        assert!(server("{}", "x").is_err());
    }

    #[test]
    fn the_way_through_a_routing_queue_is_that_of_its_kindest_destination() {
        let (server, queues) = (server(SERVER, "user1").unwrap(), queues(QUEUES, "user1").unwrap());
        let two_days = Some(48 * 3600);
        let check = |name, size, queued, walltime, width| {
            let expected =
                Way { max_array_size: size, max_queued: queued, max_walltime_s: walltime, width };
            assert_eq!(way(&server, &queues, name), expected, "{name}");
        };
        check("workq", Some(5000), Some(50), two_days, None);
        check("small", Some(4), Some(6), Some(3600), None);
        check("route", Some(4), Some(50), Some(3600), Some(6));
        check("route2", Some(100), Some(50), two_days, None);
        let acl = queues.iter().find(|q| q.name == "acl").unwrap();
        assert!(acl.is_closed_to_us && !acl.started);
    }

    #[test]
    fn a_history_of_less_than_a_day_is_not_relied_on() {
        for (attributes, expected) in [
            ("", false),
            (r#""job_history_enable": "True""#, true),
            (r#""job_history_enable": "True", "job_history_duration": "336:00:00""#, true),
            (r#""job_history_enable": "True", "job_history_duration": "00:00:10""#, false),
            (r#""job_history_enable": "True", "job_history_duration": 3600"#, false),
        ] {
            let text = format!("{{\"Server\": {{\"s\": {{{attributes}}}}}}}");
            assert_eq!(server(&text, "x").unwrap().keeps_jobs(), expected, "{attributes}");
        }
    }

    #[test]
    fn servers_since_22_throttle() {
        for (version, expected) in [
            ("23.06.06", true),
            ("22.05.11", true),
            ("20.0.1", false),
            ("2022.1.2", true),
            ("19.1.3", false),
            ("2021.1.3", false),
        ] {
            assert_eq!(can_throttle(version), expected, "{version}");
        }
    }
}

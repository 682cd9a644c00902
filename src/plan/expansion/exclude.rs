//! `[[exclude]]`: points of the product that are left out.
//!
//! A rule compares values; only its `when` needs the template engine. Never changes a trial.

use std::cell::Cell;
use std::sync::Arc;

use crate::plan::document::{Entry, Reader, Table, entries, kind};
use crate::plan::expansion::axes::Group;
use crate::plan::expansion::leaves::Origin;
use crate::plan::templates::engine::Compiled;
use crate::plan::templates::known;
use crate::plan::value::{Params, Value, read_value};

/// One rule: all conditions hold, and `when` if there is one.
pub(crate) struct Rule {
    /// Dotted names with the values that match.
    pub(crate) conditions: Vec<(Arc<str>, usize, Vec<Value>)>,
    /// The expression, ready to be rendered.
    pub(crate) when: Option<When>,
    /// Byte offset of the rule.
    pub(crate) at: usize,
    /// Whether it has left out a combination.
    pub(crate) is_used: Cell<bool>,
}

/// A condition as a Tera expression.
pub(crate) struct When {
    /// The expression, ready to be evaluated with a trial's parameters.
    pub(crate) compiled: Compiled,
    /// Byte offset of the key.
    pub(crate) at: usize,
}

/// A rule for trials of one layout: what cannot depend on the point is settled.
pub(crate) struct RuleInForm<'s> {
    pub(crate) rule: &'s Rule,
    /// Axis groups with the points that match.
    conditions: Vec<(usize, Vec<bool>)>,
}

/// Reads `[[exclude]]`; `None` if it is no list. A rule with a fault, which is reported, is left out.
pub(crate) fn read(reader: &mut Reader<'_>, entry: &Entry<'_>) -> Option<Vec<Rule>> {
    let items = reader.list(entry, "a list of tables (`[[exclude]]`)")?;
    let mut rules = Vec::with_capacity(items.len());
    for item in items {
        let rule_at = item.span().start;
        let toml::de::DeValue::Table(table) = item.get_ref() else {
            let sentence = format!("an exclusion must be a table, not {}", kind(item.get_ref()));
            reader.wrong(rule_at, sentence, "write `[[exclude]]` with its parameters below");
            continue;
        };
        if table.is_empty() {
            reader.wrong(rule_at, "an exclusion without conditions leaves out everything", {
                "write what it leaves out, as in `width = 32`"
            });
            continue;
        }
        let is_used = Cell::new(false);
        let mut rule = Rule { conditions: Vec::new(), when: None, at: rule_at, is_used };
        let n_before = reader.n_faults();
        read_conditions(reader, table, "", &mut rule);
        // Half a rule would leave out too much.
        if reader.n_faults() == n_before {
            rules.push(rule);
        }
    }
    Some(rules)
}

fn read_conditions(reader: &mut Reader<'_>, table: &Table<'_>, prefix: &str, rule: &mut Rule) {
    for entry in entries(table) {
        let name = format!("{prefix}{}", entry.key);
        match entry.item.get_ref() {
            toml::de::DeValue::String(_) if name == "when" => rule.when = read_when(reader, &entry),
            toml::de::DeValue::Table(inner) if !inner.is_empty() => {
                read_conditions(reader, inner, &format!("{name}."), rule);
            }
            _ => {
                if let Some(value) = read_value(reader, &name, entry.item) {
                    let mut matching = vec![value];
                    if let Value::List(items) = &matching[0] {
                        let items = items.clone();
                        matching.extend(items.iter().cloned());
                    }
                    rule.conditions.push((Arc::from(name), entry.at, matching));
                }
            }
        }
    }
}

fn read_when(reader: &mut Reader<'_>, entry: &Entry<'_>) -> Option<When> {
    let text = reader.text(entry)?;
    match Compiled::condition(text) {
        Ok(compiled) => Some(When { compiled, at: entry.at }),
        Err(reason) => {
            let sentence = format!("`when` is not an expression: {reason}");
            reader.wrong(entry.at, sentence, "write a condition, as in `lr > 0.1 and width == 32`");
            None
        }
    }
}

/// Whether two values are the same; an integer equals the float of its value.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Int(i), Value::Float(f)) | (Value::Float(f), Value::Int(i)) => {
            *i as f64 == *f && *f as i128 == i128::from(*i)
        }
        (Value::List(a), Value::List(b)) => {
            a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| same(a, b))
        }
        (Value::Float(a), Value::Float(b)) => a == b || a.is_nan() && b.is_nan(),
        (a, b) => a == b,
    }
}

impl Rule {
    /// The rule for trials of one layout; `None` if it matches none of them.
    pub(crate) fn in_form<'s>(
        &'s self,
        names: &[Arc<str>],
        origins: &[Origin],
        groups: &[Group],
    ) -> Option<RuleInForm<'s>> {
        if let Some(When { compiled, .. }) = &self.when
            && !compiled.uses.may_lack
            && known::first_unknown_parameter(&compiled.uses, names).is_some()
        {
            return None;
        }
        let mut conditions = Vec::new();
        for (name, _, matching) in &self.conditions {
            let is_match = |value: &Value| matching.iter().any(|m| same(m, value));
            match names.iter().position(|n| n == name).map(|i| &origins[i]) {
                Some(Origin::Fixed(value)) if is_match(value) => {}
                Some(Origin::Fixed(_)) => return None,
                Some(Origin::Axis { axis, leaf }) => {
                    let points = &groups[*axis].points;
                    // Points of another shape may have fewer values; they have another layout.
                    let hits = points.iter().map(|p| p.get(*leaf).is_some_and(is_match));
                    conditions.push((*axis, hits.collect()));
                }
                None => {
                    let find = |group: &Group| group.axes.iter().position(|a| a.name == *name);
                    let (g, axis) =
                        groups.iter().enumerate().find_map(|(g, group)| Some((g, find(group)?)))?;
                    let axis = &groups[g].axes[axis];
                    axis.special.as_ref()?;
                    conditions.push((g, axis.values.iter().map(is_match).collect()));
                }
            }
        }
        Some(RuleInForm { rule: self, conditions })
    }
}

impl RuleInForm<'_> {
    /// Whether the rule leaves out a point whatever its `when` says.
    pub(crate) fn matches_point(&self, point: &[usize]) -> bool {
        self.matched(self.rule.when.is_none() && self.conditions_hold(point))
    }

    fn matched(&self, does: bool) -> bool {
        if does {
            self.rule.is_used.set(true);
        }
        does
    }

    fn conditions_hold(&self, point: &[usize]) -> bool {
        self.conditions.iter().all(|(axis, hits)| hits[point[*axis]])
    }

    /// Whether the rule with its `when` leaves out these parameters of a point.
    ///
    /// # Errors
    /// Returns Tera's error about the expression.
    pub(crate) fn matches_params(&self, point: &[usize], params: &Params) -> Result<bool, String> {
        let Some(when) = &self.rule.when else { return Ok(false) };
        if !self.conditions_hold(point) {
            return Ok(false);
        }
        when.compiled.render(params).map(|text| self.matched(!text.is_empty()))
    }
}

#[cfg(test)]
mod tests {
    use crate::plan::testing::{check_faults, params, plan};

    fn left(rules: &str) -> String {
        let plan = plan(&format!("[defaults]\nk = 1\n[grid]\na = [1, 2]\nb = [0.5, 1.0]\n{rules}"));
        params(&plan).join(" ").replace(['"', '{', '}'], "").replace("k:1,", "")
    }

    #[test]
    fn a_rule_leaves_out_what_matches_all_its_conditions() {
        assert_eq!(left(""), "a:1,b:0.5 a:1,b:1.0 a:2,b:0.5 a:2,b:1.0");
        assert_eq!(left("[[exclude]]\na = 1\nb = 0.5"), "a:1,b:1.0 a:2,b:0.5 a:2,b:1.0");
        assert_eq!(left("[[exclude]]\nb = [0.5, 7]\n[[exclude]]\na = 2"), "a:1,b:1.0");
        assert_eq!(left("[[exclude]]\nb = 1\nk = 1"), "a:1,b:0.5 a:2,b:0.5");
        assert_eq!(left("[[exclude]]\na = 1\nk = 2"), left(""));
        assert_eq!(left("[[exclude]]\nwhen = \"a * b >= 1\""), "a:1,b:0.5");
        assert_eq!(left("[[exclude]]\na = 2\nwhen = \"b > 0.7\""), "a:1,b:0.5 a:1,b:1.0 a:2,b:0.5");
    }

    #[test]
    fn rules_that_leave_out_nothing_are_known() {
        let of = |rules: &str| {
            let plan =
                plan(&format!("[defaults]\nk = 1\n[grid]\na = [1, 2]\nb = [0.5, 1.0]\n{rules}"));
            plan.unused_rules.join("; ")
        };
        assert_eq!(of("[[exclude]]\na = 1\n[[exclude]]\nwhen = \"a > 1 and b > 0.7\""), "");
        assert_eq!(
            of(
                "[[exclude]]\na = 3\n[[exclude]]\na = 1\n[[exclude]]\nwhen = \"a > 2\"\n[[exclude]]\na = 1\nb = 1"
            ),
            "plan.toml:9: [[exclude]]; plan.toml:13: [[exclude]]; plan.toml:15: [[exclude]]"
        );
    }

    #[test]
    fn lists_tables_and_resources_can_be_excluded() {
        let lists = plan("[grid]\nbetas = [[0.9, 1], [0.8, 1]]\n[[exclude]]\nbetas = [0.9, 1.0]");
        assert_eq!(params(&lists), [r#"{"betas":[0.8,1]}"#]);
        let tables =
            plan("[grid]\nopt = [{ n = \"a\", lr = 1 }, { n = \"b\" }]\n[[exclude]]\nopt.lr = 1");
        assert_eq!(params(&tables), [r#"{"opt":{"n":"b"}}"#]);
        let ranks = plan(
            "[grid]\nresources.ranks = [1, 2]\nresources.nodes = [1, 2]\n[[exclude]]\nresources = { ranks = 1, nodes = 2 }",
        );
        let asked: Vec<_> =
            ranks.trials.iter().map(|t| (t.resources.ranks, t.resources.nodes)).collect();
        assert_eq!(asked, [(1, 1), (2, 1), (2, 2)]);
    }

    #[test]
    fn rules_that_cannot_be_meant_are_refused() {
        check_faults(
            "[defaults]\nlr = 1\n[[exclude]]\nlrr = 1\n[[exclude]]\nwhen = \"lr > \"\n[[exclude]]\nwhen = \"width > 1\"\n[[exclude]]\n[[exclude]]\nwhen = \"lr > 'a'\"",
            "`[[exclude]]`: `lrr` is not a name of this plan
  plan.toml:7: lrr = 1
hint: did you mean `lr`?
error: `when` is not an expression: found the end but expected one of: integer, float, string, bool, ident, `-`, `not`, `<`, `{`, `[` or `(`
  plan.toml:9: when = \"lr > \"
hint: write a condition, as in `lr > 0.1 and width == 32`
error: `when`: `width` is not a name of this plan
  plan.toml:11: when = \"width > 1\"
hint: known names: `lr`, `params`, `sweep` and `trial`
error: an exclusion without conditions leaves out everything
  plan.toml:12: [[exclude]]
hint: write what it leaves out, as in `width = 32`
error: `when` fails: cannot compare `i64` with `string`
  plan.toml:14: when = \"lr > 'a'\"
hint: it needs a value for each combination, as in `width != 0 and lr / width > 1`",
        );
        check_faults(
            "[defaults]\nlr = 1\n[[exclude]]\nlr = 1",
            "no trial is left: every point is excluded
  plan.toml:6: [[exclude]]
hint: loosen the exclusions",
        );
    }
}

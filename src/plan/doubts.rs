//! What of a plan is allowed, and probably not meant: sentences for the person who is about to submit it.

use std::path::Path;

use crate::plan::Plan;
use crate::plan::document::form::for_shells;
use crate::plan::templates::command::argument_name;
use crate::plan::templates::template::Template;
use crate::plan::value::Value;

/// Programs that fill in `$NAME` and `~` themselves.
const SHELLS: [&str; 6] = ["sh", "bash", "dash", "zsh", "ksh", "csh"];

impl Plan {
    /// What is probably not meant, a sentence each.
    pub(crate) fn doubts(&self) -> Vec<String> {
        let command = &self.run.command;
        let name = |word: &String| Path::new(word).file_name()?.to_str().map(str::to_owned);
        let names: Vec<String> = command.iter().filter_map(name).collect();
        let mut doubts = Vec::new();
        let is_by_shell = names.iter().any(|name| SHELLS.contains(&name.as_str()));
        for (i, word) in command.iter().enumerate() {
            let argument = argument_name("command", i);
            let value = word.split_once('=').filter(|(option, _)| option.starts_with('-'));
            let shell_syntax = for_shells(word).or_else(|| for_shells(value?.1));
            if let (Some(shell_syntax), false) = (shell_syntax, is_by_shell) {
                doubts.push(format!(
                    "`{argument}` holds `{shell_syntax}`, which the program gets as it stands: no shell fills it in"
                ));
            }
            let of_flag = Template::new(word);
            let Some(flag) = of_flag.name().filter(|_| i > 0) else { continue };
            let is_flag = |value: Option<&Value>| matches!(value, Some(Value::Bool(_)));
            if self.trials.iter().any(|trial| is_flag(trial.params.get(flag))) {
                doubts.push(format!(
                    "`{argument}` is the text `true` or `false`, and `type=bool` of argparse takes each text for true: \
                     `{{% if {flag} %}}--{flag}{{% endif %}}` leaves an option out"
                ));
            }
        }
        let is_srun = names.first().is_some_and(|name| name == "srun");
        if let (true, Some(trial)) =
            (is_srun, self.trials.iter().find(|trial| trial.resources.ranks > 1))
        {
            doubts.push(format!(
                "each of the {} ranks would start `srun` and wait for resources that the others hold: name the program \
                 alone, hpcsweep starts it once a rank",
                trial.resources.ranks
            ));
        }
        doubts
    }
}

#[cfg(test)]
mod tests {
    use crate::plan::parse;

    fn doubts(command: &str, more: &str) -> Vec<String> {
        let text = format!("version = 1\nsweep.name = \"s\"\nrun.command = {command}\n{more}");
        parse(&text, "plan.toml").unwrap().doubts()
    }

    #[test]
    fn what_only_a_shell_fills_in_is_doubted_in_arguments() {
        let all =
            doubts(r#"["./t", "~/data", "--out=~/o", "--to=$HOME/x", "a$", "{{ '$x' }}"]"#, "");
        let told: Vec<&str> = all.iter().filter_map(|text| text.split(", which").next()).collect();
        assert_eq!(
            told,
            ["`command[1]` holds `~`", "`command[2]` holds `~`", "`command[3]` holds `$HOME`"]
        );
        assert_eq!(doubts(r#"["/bin/bash", "-lc", "cd $HOME; echo ${X:-1}"]"#, ""), [""; 0]);
    }

    #[test]
    fn a_flag_alone_and_srun_in_ranks_are_doubted() {
        let more = "[grid]\nflag = [true, false]\nn = [1]\n";
        let all =
            doubts(r#"["./t", "--flag", "{{ flag }}", "--n", "{{ n }}", "x={{ flag }}"]"#, more);
        assert_eq!(all.len(), 1, "{all:?}");
        assert!(all[0].starts_with("`command[2]` is the text `true` or `false`"), "{all:?}");
        let all = doubts(r#"["/usr/bin/srun", "./t"]"#, "[resources]\nranks = 2\n");
        assert!(all[0].starts_with("each of the 2 ranks would start `srun`"), "{all:?}");
        assert_eq!(doubts(r#"["srun", "./t"]"#, ""), [""; 0]);
    }
}

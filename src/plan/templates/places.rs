//! Where the templates of a plan stand in its text.

/// The byte offsets of the templates of `[run]`, `[metrics]`, `[hooks]` and `[train]`.
#[derive(Default)]
pub(crate) struct Places {
    pub(crate) command: Vec<usize>,
    pub(crate) env: Vec<usize>,
    pub(crate) expect: Vec<usize>,
    /// Those of `[metrics] file`.
    pub(crate) file: Vec<usize>,
    /// Those of `finish`, then those of `error`.
    pub(crate) hooks: Vec<usize>,
    /// Dotted paths of `[train]` with their places, leaves and tables alike.
    pub(crate) train: Vec<(String, usize)>,
    /// The byte offset of the key `signal`; 0 if it is not written.
    pub(crate) signal: usize,
}

impl Places {
    /// Those of the command, of the variables, of what is expected, of the files of metrics and of the hooks, in this order.
    pub(crate) fn of_commands(&self) -> impl Iterator<Item = usize> {
        let metrics = self.expect.iter().chain(&self.file);
        self.command.iter().chain(&self.env).chain(metrics).chain(&self.hooks).copied()
    }

    /// The place of a path of `[train]`, or of the nearest table around it.
    pub(crate) fn of_train(&self, path: &str) -> usize {
        let mut path = path;
        loop {
            if let Some((_, at)) = self.train.iter().find(|(known, _)| known == path) {
                return *at;
            }
            path = path.rfind(['.', '[']).map_or("", |cut| &path[..cut]);
        }
    }
}

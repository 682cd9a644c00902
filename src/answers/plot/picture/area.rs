//! The rectangle between the axes.

/// The rectangle between the axes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Area {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

impl Area {
    /// A place along the axis to the right, from 0 to 1.
    pub(super) fn x(&self, place: f64) -> f64 {
        self.left + place * self.width
    }

    /// A place along the axis upwards, from 0 to 1.
    pub(super) fn y(&self, place: f64) -> f64 {
        self.top + (1.0 - place) * self.height
    }
}

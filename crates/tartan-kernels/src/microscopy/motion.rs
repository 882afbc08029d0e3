//! Rigid motions of the plane.

use std::f64::consts::{PI, TAU};

/// Turn by `theta` radians about the origin, then shift.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Motion {
    pub x: f64,
    pub y: f64,
    pub theta: f64,
}

impl Motion {
    /// Where a point goes.
    pub fn of(&self, [x, y]: [f64; 2]) -> [f64; 2] {
        let (sin, cos) = self.theta.sin_cos();
        [cos * x - sin * y + self.x, sin * x + cos * y + self.y]
    }

    /// The motion that undoes this one.
    pub fn inverse(&self) -> Self {
        let back = Motion {
            theta: -self.theta,
            ..Motion::default()
        };
        let [x, y] = back.of([self.x, self.y]);
        Motion {
            x: -x,
            y: -y,
            theta: wrapped(-self.theta),
        }
    }

    /// This motion about two centres (of what moves, of where it goes), as one about the origin.
    pub fn from_centres(&self, source: [f64; 2], target: [f64; 2]) -> Self {
        let turn = Motion {
            theta: self.theta,
            ..Motion::default()
        };
        let [x, y] = turn.of(source);
        Motion {
            x: self.x + target[0] - x,
            y: self.y + target[1] - y,
            theta: wrapped(self.theta),
        }
    }

    /// This motion about the origin, as one about two centres.
    pub fn about_centres(&self, source: [f64; 2], target: [f64; 2]) -> Self {
        let [x, y] = self.of(source);
        Motion {
            x: x - target[0],
            y: y - target[1],
            theta: self.theta,
        }
    }

    /// How far apart two motions are at `radius` from the centre; angles count up to a multiple of `period`.
    pub(super) fn distance(&self, other: &Motion, radius: f64, period: f64) -> f64 {
        let turn = (self.theta - other.theta).rem_euclid(period);
        (self.x - other.x).hypot(self.y - other.y) + radius * turn.min(period - turn)
    }
}

/// The same angle from -pi up to, but not including, pi; an angle within them stays as it is, to the bit.
fn wrapped(theta: f64) -> f64 {
    if (-PI..PI).contains(&theta) {
        return theta;
    }
    let turned = (theta + PI).rem_euclid(TAU) - PI;
    if turned < PI {
        turned
    } else {
        -PI
    }
}

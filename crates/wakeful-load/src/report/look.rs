//! The look of a line: its weight shows what the plot is about; its dashes and its marker show
//! which line it is.

use plotters::style::ShapeStyle;

use super::role::Role;

/// How a line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// What the floor is.
    Floor,
    /// A server among so many that colours would not tell them apart: grey, with its name.
    Quiet(usize),
    /// A server among few.
    Plain(usize),
    /// The server that a plot is about.
    Strong(usize),
}

impl Look {
    /// The line itself.
    pub(super) fn stroke(self) -> ShapeStyle {
        match self {
            Self::Floor => Role::Floor.stroke(2),
            Self::Quiet(index) => Role::Quiet(index).stroke(1),
            Self::Plain(index) => Role::Line(index).stroke(2),
            Self::Strong(index) => Role::Line(index).stroke(4),
        }
    }

    /// A bar.
    pub(super) fn fill(self) -> ShapeStyle {
        match self {
            Self::Floor | Self::Quiet(_) => Role::QuietMark.fill(),
            Self::Plain(index) | Self::Strong(index) => Role::Mark(index).fill(),
        }
    }

    /// Which marker it has, if it has one.
    pub(super) fn marker(self) -> Option<usize> {
        match self {
            Self::Floor | Self::Quiet(_) => None,
            Self::Plain(index) | Self::Strong(index) => Some(index),
        }
    }

    /// The letters of its label.
    pub(super) fn letters(self) -> Role {
        match self {
            Self::Floor | Self::Quiet(_) => Role::Muted,
            Self::Plain(_) => Role::Text,
            Self::Strong(_) => Role::Bold,
        }
    }

    /// What is drawn later lies on top.
    pub(super) fn layer(self) -> u8 {
        match self {
            Self::Floor => 0,
            Self::Quiet(_) => 1,
            Self::Plain(_) => 2,
            Self::Strong(_) => 3,
        }
    }
}

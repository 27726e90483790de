//! The look of a line: its weight shows what the plot is about; its dashes and its marker show
//! which line it is.

use plotters::style::ShapeStyle;

use super::role::Role;

/// The look of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// The line of the floor.
    Floor,
    /// A server among too many for colours to tell them apart. Its line is grey and has its name.
    Quiet(usize),
    /// A server among few.
    Plain(usize),
    /// The server that a plot is about.
    Strong(usize),
}

impl Look {
    /// Returns the style of the line.
    pub(super) fn stroke(self) -> ShapeStyle {
        match self {
            Self::Floor => Role::Floor.stroke(2),
            Self::Quiet(index) => Role::Quiet(index).stroke(1),
            Self::Plain(index) => Role::Line(index).stroke(2),
            Self::Strong(index) => Role::Line(index).stroke(4),
        }
    }

    /// Returns the style of a bar.
    pub(super) fn fill(self) -> ShapeStyle {
        match self {
            Self::Floor | Self::Quiet(_) => Role::QuietMark.fill(),
            Self::Plain(index) | Self::Strong(index) => Role::Mark(index).fill(),
        }
    }

    /// Returns the number of the line's marker, if it has one.
    pub(super) fn marker(self) -> Option<usize> {
        match self {
            Self::Floor | Self::Quiet(_) => None,
            Self::Plain(index) | Self::Strong(index) => Some(index),
        }
    }

    /// Returns the role of the label's letters.
    pub(super) fn letters(self) -> Role {
        match self {
            Self::Floor | Self::Quiet(_) => Role::Muted,
            Self::Plain(_) => Role::Text,
            Self::Strong(_) => Role::Bold,
        }
    }

    /// Returns the layer of the line. Higher layers are drawn later, on top of the others.
    pub(super) fn layer(self) -> u8 {
        match self {
            Self::Floor => 0,
            Self::Quiet(_) => 1,
            Self::Plain(_) => 2,
            Self::Strong(_) => 3,
        }
    }
}

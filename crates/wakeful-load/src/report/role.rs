//! The role of a shape. It decides the shape's class in the style sheet.

use plotters::style::{Color, RGBColor, ShapeStyle};

/// The numbers of colours and of patterns of dashes. The two have no common divisor, so that 8 × 5
/// lines differ.
const COLOURS: usize = 8;
const DASHES: usize = 5;

/// The role of a shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Letters.
    Text,
    /// Letters of less weight.
    Muted,
    /// Letters of more weight.
    Bold,
    /// The frame.
    Axis,
    /// The grid lines.
    Grid,
    /// The line from the end of a server's line to its label.
    Leader,
    /// A region behind the figures.
    Band,
    /// The line of a server.
    Line(usize),
    /// The marks of a server, which are never dashed.
    Mark(usize),
    /// The line of a server among many, in grey.
    Quiet(usize),
    /// The bar of a server among many.
    QuietMark,
    /// The floor.
    Floor,
    /// The cross over an invalid figure.
    Cross,
}

impl Role {
    pub(super) fn colour(self) -> RGBColor {
        let (role, index) = match self {
            Self::Text => (1, 0),
            Self::Muted => (2, 0),
            Self::Axis => (3, 0),
            Self::Grid => (4, 0),
            Self::Leader => (5, 0),
            Self::Band => (6, 0),
            Self::Line(index) => (7, index % (COLOURS * DASHES)),
            Self::Mark(index) => (8, index % COLOURS),
            Self::Quiet(index) => (9, index % DASHES),
            Self::QuietMark => (10, 0),
            Self::Floor => (11, 0),
            Self::Cross => (12, 0),
            Self::Bold => (13, 0),
        };
        RGBColor(0xE0 + role, u8::try_from(index).unwrap_or(0), 0xED)
    }

    /// Returns the class of a shape from the colour that plotters wrote.
    pub(super) fn class(colour: &str, stroke: bool) -> Option<String> {
        let role = u8::from_str_radix(colour.get(0..2)?, 16).ok()?.checked_sub(0xE0)?;
        let index = usize::from(u8::from_str_radix(colour.get(2..4)?, 16).ok()?);
        let class = match role {
            1 => "t".to_owned(),
            2 => "t m".to_owned(),
            3 => "a".to_owned(),
            4 => "g".to_owned(),
            5 => "l".to_owned(),
            6 => "b".to_owned(),
            7 => format!("s c{} d{}", index % COLOURS, index % DASHES),
            8 if stroke => format!("s c{}", index % COLOURS),
            8 => format!("f c{}", index % COLOURS),
            9 => format!("s q d{index}"),
            10 if stroke => "s q".to_owned(),
            10 => "f q".to_owned(),
            11 => "s o".to_owned(),
            12 => "s x".to_owned(),
            13 => "t w".to_owned(),
            _ => return None,
        };
        Some(class)
    }

    /// Returns the style of a line in this role.
    pub(super) fn stroke(self, width: u32) -> ShapeStyle {
        ShapeStyle { color: self.colour().to_rgba(), filled: false, stroke_width: width }
    }

    /// Returns the style of a region in this role.
    pub(super) fn fill(self) -> ShapeStyle {
        ShapeStyle { color: self.colour().to_rgba(), filled: true, stroke_width: 0 }
    }
}

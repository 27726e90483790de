//! Draws with plotters, and replaces its fixed colours by classes of the style sheet.
//!
//! plotters knows only colours, but a page has two sets of them, for light and for dark. So shapes
//! are drawn in colours that stand for a [`Role`], and [`body`] replaces each by the class of its
//! role.

use std::fmt::Write as _;

use askama::Template;
use plotters::{
    coord::Shift,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use super::{error::ReportError, look::Look, rendered::rendered, role::Role};

/// The area on which shapes are drawn.
pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The height of letters in a plot.
const LETTERS: i32 = 12;

/// The approximate width of a letter.
pub(super) const LETTER_WIDTH: i32 = 7;

/// Returns the style of letters. plotters takes a font's whole height as its size, but SVG takes
/// the letters' height.
fn letters(role: Role, horizontal: HPos, size: i32) -> TextStyle<'static> {
    ("sans-serif", f64::from(size) * 1.24)
        .into_font()
        .color(&role.colour())
        .pos(Pos::new(horizontal, VPos::Center))
}

/// Draws text at a point.
pub(super) fn text(
    area: &Area<'_>,
    text: &str,
    at: (i32, i32),
    role: Role,
    horizontal: HPos,
) -> Result<(), ReportError> {
    sized(area, text, at, role, horizontal, LETTERS)
}

/// Like [`text`], but with letters of the height `size`.
pub(super) fn sized(
    area: &Area<'_>,
    text: &str,
    at: (i32, i32),
    role: Role,
    horizontal: HPos,
    size: i32,
) -> Result<(), ReportError> {
    let text = crate::format::plain(text);
    draw_on(area, &Text::new(text, at, letters(role, horizontal, size)))
}

/// Draws one shape.
pub(super) fn draw_on<'a, 'b, E>(area: &Area<'a>, shape: &'b E) -> Result<(), ReportError>
where
    &'b E: plotters::element::PointCollection<'b, (i32, i32)>,
    E: plotters::element::Drawable<SVGBackend<'a>>,
{
    area.draw(shape).map_err(|error| ReportError::Plot(error.to_string()))
}

/// Draws a line through points.
pub(super) fn path(
    area: &Area<'_>,
    points: Vec<(i32, i32)>,
    style: ShapeStyle,
) -> Result<(), ReportError> {
    draw_on(area, &PathElement::new(points, style))
}

/// Draws a server's marker. There are six different shapes.
pub(super) fn marker(area: &Area<'_>, index: usize, (x, y): (i32, i32)) -> Result<(), ReportError> {
    let (fill, stroke) = (Role::Mark(index).fill(), Role::Mark(index).stroke(2));
    match index % 6 {
        0 => draw_on(area, &Circle::new((x, y), 4, fill)),
        1 => draw_on(area, &Rectangle::new([(x - 4, y - 4), (x + 4, y + 4)], fill)),
        2 => draw_on(area, &Polygon::new(vec![(x, y - 5), (x + 5, y + 4), (x - 5, y + 4)], fill)),
        3 => draw_on(area, &Circle::new((x, y), 4, stroke)),
        4 => {
            draw_on(area, &Polygon::new(vec![(x, y - 5), (x + 5, y), (x, y + 5), (x - 5, y)], fill))
        }
        // This is not a cross, because a cross marks what is invalid.
        _ => draw_on(area, &Rectangle::new([(x - 4, y - 4), (x + 4, y + 4)], stroke)),
    }
}

/// Draws the mark of a server among many.
pub(super) fn dot(area: &Area<'_>, at: (i32, i32)) -> Result<(), ReportError> {
    draw_on(area, &Circle::new(at, 3, Role::QuietMark.fill()))
}

/// Draws a cross over an invalid figure.
pub(super) fn cross(area: &Area<'_>, (x, y): (i32, i32)) -> Result<(), ReportError> {
    let stroke = Role::Cross.stroke(2);
    path(area, vec![(x - 6, y - 6), (x + 6, y + 6)], stroke)?;
    path(area, vec![(x - 6, y + 6), (x + 6, y - 6)], stroke)
}

/// The title and the description of an SVG.
#[derive(Debug, Clone, Copy)]
pub(super) struct Caption<'a> {
    /// An id that is unique in the page.
    pub(super) id: &'a str,
    /// The class that a media query shows or hides.
    pub(super) class: &'a str,
    /// The title, in one line.
    pub(super) title: &'a str,
    /// A description of the plot in words.
    pub(super) description: &'a str,
}

#[derive(Template)]
#[template(path = "report/plot.svg")]
struct Plot<'a> {
    caption: Caption<'a>,
    width: i32,
    height: i32,
    body: String,
}

/// Makes an SVG of this size, which `shapes` draws.
pub(super) fn draw(
    caption: Caption<'_>,
    (width, height): (i32, i32),
    shapes: impl FnOnce(&Area<'_>) -> Result<(), ReportError>,
) -> Result<String, ReportError> {
    rendered(&Plot { caption, width, height, body: body((width, height), shapes)? })
}

/// Returns the content of an SVG of this size, and its end tag.
pub(super) fn body(
    (width, height): (i32, i32),
    shapes: impl FnOnce(&Area<'_>) -> Result<(), ReportError>,
) -> Result<String, ReportError> {
    let mut drawn = String::new();
    {
        let size = (width.unsigned_abs(), height.unsigned_abs());
        let area = SVGBackend::with_string(&mut drawn, size).into_drawing_area();
        shapes(&area)?;
        area.present().map_err(|error| ReportError::Plot(error.to_string()))?;
    }
    // The opening tag that plotters writes is dropped, because it has a fixed size and no title.
    Ok(with_classes(drawn.split_once(">\n").map_or("", |(_, body)| body)))
}

/// Replaces colours by classes, and drops attributes that the style sheet sets. No text can be
/// mistaken for an attribute, because its quotes are escaped.
fn with_classes(svg: &str) -> String {
    let svg = svg.replace(" opacity=\"1\"", "").replace(" font-family=\"sans-serif\"", "");
    let mut out = String::with_capacity(svg.len());
    let mut rest = svg.as_str();
    while let Some(at) = rest.find("=\"#") {
        let (before, after) = rest.split_at(at);
        let stroke = before.ends_with(" stroke");
        let name = if stroke { " stroke" } else { " fill" };
        let colour = after.get(3..9).unwrap_or_default();
        match (before.strip_suffix(name), Role::class(colour, stroke)) {
            (Some(before), Some(class)) => {
                let _ = write!(out, "{before} class=\"{class}\"");
                rest = &after[10..];
            }
            _ => {
                out.push_str(before);
                out.push_str("=\"#");
                rest = &after[3..];
            }
        }
    }
    out.push_str(rest);
    out
}

/// Makes a sample of a line and its marker for a legend.
pub(super) fn sample(look: Look) -> Result<String, ReportError> {
    let body = body((44, 14), |area| {
        path(area, vec![(0, 7), (44, 7)], look.stroke())?;
        look.marker().map_or(Ok(()), |index| marker(area, index, (22, 7)))
    })?;
    Ok(format!("<svg class=\"sample\" viewBox=\"0 0 44 14\" aria-hidden=\"true\">{body}"))
}

//! Lines over two axes, each with its label at its end.

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::{
    axis::Axis,
    frame::{Frame, cut, spread},
};
use crate::report::{
    ReportError,
    html::Window,
    look::Look,
    role::Role,
    svg::{self, Area, Caption},
};

/// One line.
#[derive(Debug, Clone)]
pub(super) struct Line {
    /// The colour, dashes, marker and weight.
    pub(super) look: Look,
    /// The key: one or two letters, or nothing.
    pub(super) key: String,
    /// The name of what the line shows.
    pub(super) name: String,
    /// The text that stands after the name, even if the name is cut.
    pub(super) mark: &'static str,
    /// The points of the line, in positions of the axes.
    pub(super) points: Vec<(f64, f64)>,
    /// The points that are crossed out.
    pub(super) invalid: Vec<(f64, f64)>,
}

impl Line {
    fn width(&self) -> usize {
        self.name.chars().count() + self.mark.chars().count()
    }
}

/// A plot of lines.
#[derive(Debug)]
pub(super) struct Plot {
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) lines: Vec<Line>,
}

impl Plot {
    /// Draws the plot for a window.
    pub(super) fn draw(&self, window: Window, caption: Caption<'_>) -> Result<String, ReportError> {
        let frame = Frame::of(window);
        let labels = self.labels(&frame);
        let size = (frame.width, frame.height(labels.len()));
        svg::draw(caption, size, |area| self.shapes(area, &frame, size.1, &labels))
    }

    /// Returns the labels at the lines' ends: names, or only keys where there is no room for names.
    pub(super) fn labels(&self, frame: &Frame) -> Vec<String> {
        let room = frame.names;
        let fit = self.lines.iter().all(|line| line.width() <= room);
        let label = |line: &Line| {
            let name = cut(&line.name, room.saturating_sub(line.mark.chars().count()));
            let text = if line.key.is_empty() || frame.bare || (fit && !frame.keys) {
                name
            } else if frame.keys {
                // Two names may look the same when they are cut, but the keys before them differ.
                format!("{} {name}", line.key)
            } else {
                line.key.clone()
            };
            text + line.mark
        };
        self.lines.iter().map(label).collect()
    }

    pub(super) fn shapes(
        &self,
        area: &Area<'_>,
        frame: &Frame,
        height: i32,
        labels: &[String],
    ) -> Result<(), ReportError> {
        let failed =
            |error: DrawingAreaErrorKind<std::io::Error>| ReportError::Plot(error.to_string());
        let right = frame.right(labels);
        let (left, top, bottom) = (frame.left(), frame.top(), height - frame.bottom());
        let edge = frame.width - right;
        let mut chart = ChartBuilder::on(area)
            .margin_top(top)
            .margin_left(left)
            .margin_right(right)
            .margin_bottom(frame.bottom())
            .build_cartesian_2d(self.x.low..self.x.high, self.y.low..self.y.high)
            .map_err(failed)?;

        let gap = frame.letters / 2;
        for (at, label) in self.x.thinned(edge - left, frame.letter_width()) {
            let (x, _) = chart.backend_coord(&(at, self.y.low));
            svg::path(area, vec![(x, top), (x, bottom)], Role::Grid.stroke(1))?;
            let below = (x, bottom + gap + frame.letters * 2 / 3);
            svg::sized(area, &label, below, Role::Text, HPos::Center, frame.letters)?;
        }
        for (at, label) in self.y.spaced(bottom - top, frame.letters + 4) {
            let (_, y) = chart.backend_coord(&(self.x.low, at));
            svg::path(area, vec![(left, y), (edge, y)], Role::Grid.stroke(1))?;
            svg::sized(area, &label, (left - gap, y), Role::Text, HPos::Right, frame.letters)?;
        }
        svg::path(area, vec![(left, top), (left, bottom), (edge, bottom)], Role::Axis.stroke(1))?;
        let above = (4, top - frame.letters - 4);
        svg::sized(area, self.y.title, above, Role::Muted, HPos::Left, frame.letters)?;
        let below = (left + (edge - left) / 2, height - frame.letters * 3 / 4);
        svg::sized(area, self.x.title, below, Role::Muted, HPos::Center, frame.letters)?;

        let mut ordered: Vec<(&Line, &String)> = self.lines.iter().zip(labels).collect();
        ordered.retain(|(line, _)| !line.points.is_empty());
        ordered.sort_by_key(|(line, _)| line.look.layer());
        for (line, _) in &ordered {
            let series = LineSeries::new(line.points.iter().copied(), line.look.stroke());
            chart.draw_series(series).map_err(failed)?;
        }
        let mut ends = Vec::new();
        for (line, label) in ordered {
            let pixels: Vec<_> =
                line.points.iter().map(|point| chart.backend_coord(point)).collect();
            if let Some(index) = line.look.marker() {
                for at in marked(pixels.len(), index) {
                    svg::marker(area, index, pixels[at])?;
                }
            }
            for point in &line.invalid {
                svg::cross(area, chart.backend_coord(point))?;
            }
            if let Some(end) = pixels.last().filter(|_| !label.is_empty()) {
                ends.push((*end, label, line.look.letters()));
            }
        }
        let wanted: Vec<i32> = ends.iter().map(|((_, y), _, _)| *y).collect();
        let placed = spread(&wanted, frame.line_height(), top, bottom);
        for (((x, y), label, role), at) in ends.into_iter().zip(placed) {
            let leader = vec![(x + 6, y), ((x + 6).max(edge + 2), y), (edge + 18, at)];
            svg::path(area, leader, Role::Leader.stroke(1))?;
            svg::sized(area, label, (edge + 22, at), role, HPos::Left, frame.labels)?;
        }
        Ok(())
    }
}

/// Returns which points have markers: all of a few, otherwise some. Each line marks other points,
/// so that lines that lie upon each other can be told apart.
fn marked(count: usize, index: usize) -> Vec<usize> {
    if count <= 8 {
        return (0..count).collect();
    }
    let step = count.div_ceil(5);
    (index * 3 % step..count).step_by(step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_points_are_all_marked() {
        assert_eq!(marked(3, 7), [0, 1, 2]);
        assert_eq!(marked(100, 0).len(), 5);
    }
}

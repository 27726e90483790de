//! The frame of a plot of lines: its size, its letters, and the room for its labels.

use crate::report::html::Window;

/// The size of a plot and of its letters, in pixels.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    pub(super) width: i32,
    /// The height, unless the labels need more.
    pub(super) least: i32,
    /// The height of letters.
    pub(super) letters: i32,
    /// The height of the labels at the lines' ends.
    pub(super) labels: i32,
    /// How many letters of a name are shown at its line's end.
    pub(super) names: usize,
    /// Whether the key stands before the name.
    pub(super) keys: bool,
    /// Whether there are no keys at all.
    pub(super) bare: bool,
}

impl Frame {
    /// Returns the frame for a window.
    pub(super) fn of(window: Window) -> Self {
        let (letters, labels, bare) = (12, 12, false);
        match window {
            Window::Wide => {
                Self { width: 860, least: 380, letters, labels, names: 26, keys: true, bare }
            }
            Window::Narrow => {
                Self { width: 360, least: 290, letters, labels, names: 7, keys: false, bare }
            }
        }
    }

    /// Returns the height of a plot with `labels` labels.
    pub(super) fn height(&self, labels: usize) -> i32 {
        let count = i32::try_from(labels).unwrap_or(1000).min(1000);
        self.least.max((count + 1) * self.line_height() + self.top() + self.bottom())
    }

    /// Returns the least distance between labels.
    pub(super) fn line_height(&self) -> i32 {
        (self.labels * 6 + 4) / 5
    }

    pub(super) fn letter_width(&self) -> i32 {
        width_of(self.letters)
    }

    /// Returns the room for the ticks' labels.
    pub(super) fn left(&self) -> i32 {
        self.letters * 29 / 6
    }

    pub(super) fn top(&self) -> i32 {
        self.letters * 13 / 6
    }

    pub(super) fn bottom(&self) -> i32 {
        self.letters * 7 / 2
    }

    /// Returns the room for these labels.
    pub(super) fn right(&self, labels: &[String]) -> i32 {
        let longest = labels.iter().map(|label| label.chars().count()).max().unwrap_or_default();
        let longest = i32::try_from(longest).unwrap_or(40).min(40);
        (30 + width_of(self.labels) * longest * 12 / 11).max(self.letters * 3)
    }
}

/// Returns the approximate width of a letter of this height.
fn width_of(letters: i32) -> i32 {
    (letters * 7 + 11) / 12
}

/// Cuts a name to at most `letters` letters.
pub(super) fn cut(name: &str, letters: usize) -> String {
    if name.chars().count() <= letters {
        return name.to_owned();
    }
    name.chars().take(letters.saturating_sub(1)).chain(['…']).collect()
}

/// Moves labels apart until no two touch, and keeps their order.
pub(super) fn spread(wanted: &[i32], apart: i32, top: i32, bottom: i32) -> Vec<i32> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by_key(|i| (wanted[*i], *i));
    let mut placed = vec![0; wanted.len()];
    let mut free = top;
    for i in &order {
        placed[*i] = wanted[*i].max(free);
        free = placed[*i] + apart;
    }
    let mut limit = bottom;
    for i in order.iter().rev() {
        placed[*i] = placed[*i].min(limit);
        limit = placed[*i] - apart;
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_never_touch_and_stay_inside() {
        let wanted: Vec<i32> = vec![100, 100, 101, 250, 248, 20, 249, 100, 255, 30];
        let placed = spread(&wanted, 14, 20, 260);
        let mut sorted = placed.clone();
        sorted.sort_unstable();
        assert!(sorted.windows(2).all(|pair| pair[1] - pair[0] >= 14), "{placed:?}");
        assert!(sorted[0] >= 20 && sorted[9] <= 260, "{placed:?}");
    }

    #[test]
    fn a_name_is_cut_where_room_ends() {
        assert_eq!(cut("wakeful", 7), "wakeful");
        assert_eq!(cut("größer-als", 6), "größe…");
    }
}

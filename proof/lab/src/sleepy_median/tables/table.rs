//! A table of what was measured, with a row for each contender and a column for each figure.

use wakeful_load::internals::results::{Cell, Column, Table, Unit};

use crate::interleaved::Measured;

/// The columns of a table: the head, the unit and the figure of each.
pub(super) type Columns<'a, T> = &'a [(&'a str, Unit, fn(&T) -> Option<f64>)];

pub(super) fn table<T>(
    measured: &Measured<T>,
    title: &str,
    note: &str,
    columns: Columns<'_, T>,
) -> Table {
    let row = |name: &str| {
        let cells = columns.iter().map(|(_, _, figure)| measured.cell(name, figure));
        std::iter::once(Cell::text(name)).chain(cells).collect()
    };
    let heads = columns.iter().map(|(head, unit, _)| Column::new(head, *unit));
    Table {
        title: title.to_owned(),
        note: note.to_owned(),
        columns: std::iter::once(Column::new("server", Unit::Text)).chain(heads).collect(),
        rows: measured.names().map(row).collect(),
    }
}

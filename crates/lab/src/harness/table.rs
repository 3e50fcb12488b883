//! Tables for the terminal: the first column to the left, the others to the right.

use crate::harness::stats::Estimate;

/// In place of a figure that there is none of.
pub const NOT_MEASURED: &str = "not measured";

/// Aligns rows below their heading.
pub fn render(heading: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([heading[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heading.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let mut line = String::new();
        for (column, width) in widths.iter().enumerate() {
            let cell = cells.get(column).copied().unwrap_or("");
            if column == 0 {
                line += &format!("{cell:<width$}");
            } else {
                line += &format!("  {cell:>width$}");
            }
        }
        line.trim_end().to_owned() + "\n"
    };
    let rule = "─".repeat(widths.iter().sum::<usize>() + 2 * (widths.len().max(1) - 1)) + "\n";
    let mut table = line(heading.to_vec()) + &rule;
    for row in rows {
        table += &line(row.iter().map(String::as_str).collect());
    }
    table
}

/// A figure with as many digits as say something, and thousands apart.
pub fn figure(value: f64) -> String {
    match value.abs() {
        x if !x.is_finite() => "–".into(),
        x if x >= 1e12 => format!("{value:.0e}"),
        x if x >= 1000.0 => thousands(value),
        x if x >= 100.0 => format!("{value:.0}"),
        x if x >= 10.0 => format!("{value:.1}"),
        x if x >= 1.0 || x == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// A whole number, thousands apart.
pub fn thousands(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0.0 { format!("-{text}") } else { text }
}

/// A figure with its interval, where it has one.
pub fn interval(estimate: &Estimate) -> String {
    let value = figure(estimate.value);
    match estimate.interval {
        Some([low, high]) => format!("{value} [{}, {}]", figure(low), figure(high)),
        None => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [vec!["plain Linux".into(), "7".into()], vec!["µs".into(), "1,000".into()]];
        let table = render(&["how", "per s"], &rows);
        let expected = "\
how          per s
──────────────────
plain Linux      7
µs           1,000
";
        assert_eq!(table, expected);
    }

    #[test]
    fn figures() {
        let shown =
            [2e15, 1234567.8, -1500.0, 156.4, 12.34, 1.234, 0.0, 0.0123, f64::NAN].map(figure);
        assert_eq!(
            shown,
            ["2e15", "1,234,568", "-1,500", "156", "12.3", "1.23", "0.00", "0.012", "–"]
        );
    }
}

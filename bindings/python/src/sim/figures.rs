//! Figures as JSON, for whoever draws them.

use dwell_figures::chart::{Axis, Chart, Kind, Role, Scale, Series};
use serde_json::{Value, json};

/// Returns a chart with all of its numbers.
pub(super) fn json(id: &str, chart: &Chart) -> Value {
    json!({
        "id": id,
        "title": chart.title,
        "caption": chart.caption,
        "x": axis(&chart.x),
        "y": axis(&chart.y),
        "series": chart.series.iter().map(series).collect::<Vec<_>>(),
    })
}

fn axis(axis: &Axis) -> Value {
    json!({
        "label": axis.label,
        "unit": axis.unit,
        "log": axis.scale == Scale::Log,
        "range": axis.range,
        "floor": axis.floor,
        "categories": axis.categories,
    })
}

fn series(series: &Series) -> Value {
    let kind = match series.kind {
        Kind::Line => "line",
        Kind::Points => "points",
        Kind::Steps => "steps",
        Kind::Bars => "bars",
    };
    let role = match series.role {
        Role::Ours => "ours",
        Role::Paper => "paper",
        Role::Bound => "bound",
        Role::Reference => "reference",
    };
    let points = series.points.iter().map(|point| json!([point.x, point.y, point.low, point.high]));
    json!({ "name": series.name, "kind": kind, "role": role, "points": points.collect::<Vec<_>>() })
}

"""A map as a page of its own: panels, linked selection, numbers; it asks nothing of a network."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

__all__ = ["PageDocument", "map_page"]

_STYLE = """
:root { color-scheme: light dark; --ink: #1d2430; --ground: #ffffff; --line: #c9ced6; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ef; --ground: #12161d; --line: #3a424f; } }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; padding: 1rem; max-width: 1600px;
  color: var(--ink); background: var(--ground); }
.panels { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr));
  gap: 1rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.9rem; }
th, td { border-bottom: 1px solid var(--line); padding: 0.2rem 0.6rem; text-align: left;
  unicode-bidi: plaintext; }
button { font: inherit; padding: 0.2rem 0.8rem; }
.shared { font-weight: 600; }
"""

# Texts reach the page by `textContent` alone, so markup in them stays text.
_SCRIPT = """
(() => {
  const data = JSON.parse(document.getElementById("map-data").textContent);
  const ink = () => getComputedStyle(document.body).color;
  const places = [...document.querySelectorAll(".panel")];
  // The last two would send the chart to a server.
  const config = { displaylogo: false, responsive: true, showSendToCloud: false,
    modeBarButtonsToRemove: ["autoScale2d", "sendDataToCloud", "sendChartToCloud"] };
  const MAX_ROWS = 500;
  let busy = false;

  function row(cells, kind = "td") {
    const line = document.createElement("tr");
    for (const cell of cells) {
      const box = document.createElement(kind);
      box.textContent = cell;
      line.append(box);
    }
    return line;
  }

  function fill(table, head, lines) {
    table.replaceChildren(row(head, "th"), ...lines);
  }

  function list(rows) {
    const shown = [...rows].slice(0, MAX_ROWS);
    document.getElementById("count").textContent = rows.size
      ? `${rows.size} of ${data.documents.length} documents selected`
      : `${data.documents.length} documents; draw round some of them to select`;
    fill(document.getElementById("documents"), ["id", "title", "label", "tokens"],
      shown.map((i) => row(data.documents[i])));
  }

  function neighbours(i) {
    const place = document.getElementById("neighbours");
    if (i === null) { place.replaceChildren(); return; }
    const table = document.createElement("table");
    const lines = [];
    const most = Math.max(...data.modes.map((mode) => data.neighbours[mode][i].length));
    for (let rank = 0; rank < most; rank += 1) {
      const cells = data.modes.map((mode) => {
        const found = data.neighbours[mode][i][rank];
        if (!found) return "";
        const everywhere = data.modes.every(
          (other) => data.neighbours[other][i].some((item) => item[0] === found[0]));
        return `${everywhere ? "● " : ""}${data.documents[found[0]][1]} (${found[1].toFixed(2)})`;
      });
      lines.push(row([rank + 1, ...cells]));
    }
    fill(table, ["", ...data.titles], lines);
    const title = document.createElement("h3");
    title.textContent = `Nearest to ${data.documents[i][1]}`;
    const note = document.createElement("p");
    note.textContent = "In the full space, by cosine; ● stands under every pooling.";
    place.replaceChildren(title, table, note);
  }

  async function select(rows) {
    if (busy) return;
    busy = true;
    for (const place of places) {
      const found = place.data.map((trace) => !rows.size ? null
        : [...(trace.rows || [])].flatMap((item, at) => rows.has(item) ? [at] : []));
      // In one call, since each draws all points again.
      await Plotly.update(place, { selectedpoints: found }, { selections: [] });
    }
    list(rows);
    neighbours(rows.size === 1 ? [...rows][0] : null);
    busy = false;
  }

  const rowsOf = (event) => new Set(((event && event.points) || []).map((point) =>
    point.data.rows[point.pointIndex]).sort((a, b) => a - b));

  places.forEach((place, number) => {
    const figure = data.figures[number];
    Object.assign(figure.layout, { paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: ink() }, autosize: true,
      modebar: { bgcolor: "rgba(0,0,0,0)", color: ink(), activecolor: "#14946B" } });
    figure.data.forEach((trace, at) => { trace.rows = data.rows[number][at]; });
    Plotly.newPlot(place, figure.data, figure.layout, config);
    place.on("plotly_selected", (event) => { if (event) select(rowsOf(event)); });
    place.on("plotly_deselect", () => select(new Set()));
  });
  document.getElementById("clear").addEventListener("click", () => select(new Set()));
  list(new Set());
})();
"""


@dataclass(frozen=True, slots=True)
class PageDocument:
    """One line of the table below the panels."""

    id: str
    title: str
    label: str
    tokens: str


def map_page(
    title: str,
    figures: Mapping[str, go.Figure],
    alts: Sequence[str],
    documents: Sequence[PageDocument],
    neighbours: Mapping[str, Sequence[Sequence[tuple[int, float]]]],
    numbers: Sequence[Sequence[str]],
    findings: Sequence[str],
    note: str,
) -> str:
    """Returns a page that needs nothing but itself.

    Args:
        title: of the page.
        figures: panels by the name of their pooling, in order, made by `map_figure`.
        alts: what each panel shows, in a sentence.
        documents: one a point, in the order of the rows.
        neighbours: by the same names, for each row its nearest rows with their cosines.
        numbers: a table with its head as first line.
        findings: sentences below the panels.
        note: how the map was made.
    """
    data: dict[str, Any] = {
        "figures": [json.loads(figure.to_json()) for figure in figures.values()],
        # Beside the figures, since Plotly packs arrays of numbers.
        "rows": [
            [[] if t.customdata is None else [int(row) for row in t.customdata] for t in f.data]
            for f in figures.values()
        ],
        "titles": list(figures),
        "modes": list(neighbours),
        "neighbours": {
            name: [[[int(row), round(float(cosine), 4)] for row, cosine in near] for near in lists]
            for name, lists in neighbours.items()
        },
        "documents": [[d.id, d.title, d.label, d.tokens] for d in documents],
    }
    # Inside a script element only "<" can end or open anything.
    packed = json.dumps(data, ensure_ascii=True, allow_nan=False).replace("<", "\\u003c")
    head, *lines = numbers
    table = "".join(
        "<tr>" + "".join(f"<{kind}>{escape(cell)}</{kind}>" for cell in line) + "</tr>"
        for line, kind in [(head, "th"), *((line, "td") for line in lines)]
    )
    panels = "".join(
        f'<div class="panel" role="img" aria-label="{escape(alt)}"></div>' for alt in alts
    )
    said = "".join(f"<p>{escape(finding)}</p>" for finding in findings)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>"
        f'<h1>{escape(title)}</h1><p>{escape(note)}</p><div class="panels">{panels}</div>{said}'
        '<p><span id="count"></span> <button id="clear" type="button">Clear selection</button></p>'
        '<div id="neighbours" class="wide"></div>'
        '<h2>Numbers</h2><div class="wide"><table>'
        f"{table}</table></div>"
        '<h2>Documents</h2><div class="wide"><table id="documents"></table></div>'
        f"<script>{get_plotlyjs()}</script>"
        f'<script type="application/json" id="map-data">{packed}</script>'
        f"<script>{_SCRIPT}</script></body></html>\n"
    )

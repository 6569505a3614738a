// A click on a heading sorts the table; without this script the table stays as it is.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => {
    const button = document.createElement("button");
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const up = heading.getAttribute("aria-sort") !== "ascending";
      headings.forEach((other) => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", up ? "ascending" : "descending");
      const value = (row) => row.cells[column]?.dataset.value;
      const order = (a, b) => {
        const [x, y] = [value(a), value(b)];
        if (x === undefined || y === undefined) return (x === undefined) - (y === undefined);
        const gap = isNaN(x) || isNaN(y) ? x.localeCompare(y) : x - y;
        return up ? gap : -gap;
      };
      body.append(...[...body.rows].sort(order));
    });
  });
}

// Shows captions as a list that follows what is said.

const SPEAKERS = { user: "You", assistant: "Assistant" };
const NEAR_END_PX = 80; // whoever has scrolled up further than this is reading, and is left there

export class CaptionList {
  #list;
  #scroller;
  #rows = new Map();
  #follows = true;

  constructor(list, scroller) {
    this.#list = list;
    this.#scroller = scroller;
    scroller.addEventListener("scroll", () => (this.#follows = this.#belowPx() < NEAR_END_PX));
    const sizes = new ResizeObserver(() => this.#follow()); // a keyboard that slides in takes room from below
    sizes.observe(scroller);
    sizes.observe(list);
  }

  show(line) {
    if (line.state === "gone") {
      this.#rows.get(line.id)?.remove();
      this.#rows.delete(line.id);
      return;
    }
    const row = this.#rows.get(line.id) ?? this.#add(line);
    row.dataset.state = line.state;
    row.querySelector(".words").textContent = line.text;
    row.querySelector(".note").textContent =
      line.state === "interrupted" ? `interrupted after ${(line.heardMs / 1000).toFixed(1)} s` : "";
  }

  clear() {
    this.#list.replaceChildren();
    this.#rows.clear();
    this.#follows = true;
  }

  #follow() {
    if (this.#follows) this.#scroller.scrollTop = this.#scroller.scrollHeight;
  }

  #belowPx() {
    return this.#scroller.scrollHeight - this.#scroller.scrollTop - this.#scroller.clientHeight;
  }

  #add({ id, role }) {
    const row = document.createElement("li");
    row.className = role;
    for (const [name, text] of [
      ["speaker", SPEAKERS[role]],
      ["words", ""],
      ["note", ""],
    ]) {
      const part = document.createElement("span");
      part.className = name;
      part.textContent = text;
      row.append(part);
    }
    this.#list.append(row);
    this.#rows.set(id, row);
    return row;
  }
}

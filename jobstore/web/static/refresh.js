"use strict";
// Fetches the page again every few seconds and puts its figures in place, while
// somebody looks. Without scripts the page is as it was when it was loaded.
(() => {
  const place = document.getElementById("refresh");
  const live = document.getElementById("live");
  if (!place || !live) return;
  const label = document.createElement("label");
  const box = document.createElement("input");
  box.type = "checkbox";
  box.checked = sessionStorage.getItem("refresh") !== "off";
  label.append(box, ` every ${place.dataset.seconds} s,`);
  place.replaceChildren(label);
  const said = place.parentElement.querySelector("time");

  // Puts the new figures in place; what was open, focused or scrolled stays so.
  function replace(fresh) {
    const focusable = () => [...live.querySelectorAll("a, summary, [tabindex]")];
    const scrolled = () => [...live.querySelectorAll(".scroll")];
    const open = live.querySelector("details")?.open;
    const focused = focusable().indexOf(document.activeElement);
    const places = scrolled().map((one) => [one.scrollLeft, one.scrollTop]);
    live.replaceChildren(...fresh.childNodes);
    const details = live.querySelector("details");
    if (details) details.open = Boolean(open);
    if (focused >= 0) focusable()[focused]?.focus({ preventScroll: true });
    scrolled().forEach((one, number) => one.scrollTo(...(places[number] ?? [0, 0])));
  }

  async function look() {
    // Whoever is marking something to copy is left alone.
    if (!box.checked || document.hidden || !getSelection().isCollapsed) return;
    try {
      const answer = await fetch(location.href, { credentials: "same-origin" });
      if (!answer.ok || answer.redirected) throw new Error(String(answer.status));
      const text = await answer.text();
      const page = new DOMParser().parseFromString(text, "text/html");
      replace(page.getElementById("live"));
      const time = page.querySelector("#refresh + time");
      said.textContent = time.textContent;
      said.dateTime = time.dateTime;
      live.classList.remove("old");
    } catch {
      live.classList.add("old");
    }
  }

  box.addEventListener("change", () => {
    sessionStorage.setItem("refresh", box.checked ? "on" : "off");
    look();
  });
  setInterval(look, Number(place.dataset.seconds) * 1000);
})();

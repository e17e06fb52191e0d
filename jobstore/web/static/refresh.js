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

  async function look() {
    if (!box.checked || document.hidden) return;
    // Whoever is in the middle of something there is left alone.
    if (live.contains(document.activeElement) && document.activeElement !== live) return;
    try {
      const answer = await fetch(location.href, { credentials: "same-origin" });
      if (!answer.ok || answer.redirected) throw new Error(String(answer.status));
      const text = await answer.text();
      const page = new DOMParser().parseFromString(text, "text/html");
      const open = live.querySelector("details")?.open;
      live.replaceChildren(...page.getElementById("live").childNodes);
      const details = live.querySelector("details");
      if (details && open) details.open = true;
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

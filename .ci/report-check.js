// Says what of this page is wider than its window, and which letters of a plot lie upon others or
// are cut off. With everything unfolded.
"use strict";
for (const fold of document.querySelectorAll("details")) fold.open = true;
const wrong = [];
const width = document.documentElement.clientWidth;
if (document.scrollingElement.scrollWidth > width) {
  wrong.push(`the page is ${document.scrollingElement.scrollWidth} wide`);
}
const name = (element) => `<${element.tagName}> "${element.textContent.trim().slice(0, 40)}"`;
for (const element of document.body.querySelectorAll("*")) {
  // Tables scroll in their own boxes; what is within an SVG is looked at below.
  if (element.closest(".scroll table") || element.ownerSVGElement) continue;
  const box = element.getBoundingClientRect();
  if (box.width > 0 && (box.right > width + 0.5 || box.left < -0.5)) {
    wrong.push(`${name(element)} reaches from ${box.left} to ${box.right}`);
  }
}
let plots = 0;
let letters = 0;
for (const svg of document.querySelectorAll("svg")) {
  const frame = svg.getBoundingClientRect();
  if (frame.width === 0) continue;
  plots += 1;
  const texts = [...svg.querySelectorAll("text")];
  const boxes = texts.map((text) => text.getBoundingClientRect());
  letters += texts.length;
  const title = svg.querySelector("title")?.textContent;
  boxes.forEach((a, i) => {
    const slack = 1;
    if (a.left < frame.left - slack || a.right > frame.right + slack ||
        a.top < frame.top - slack || a.bottom > frame.bottom + slack) {
      wrong.push(`${title}: ${name(texts[i])} is cut off`);
    }
    for (let j = i + 1; j < boxes.length; j += 1) {
      const b = boxes[j];
      const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (across > slack && down > slack) {
        wrong.push(`${title}: ${name(texts[i])} and ${name(texts[j])} overlap by ${across} x ${down}`);
      }
    }
  });
}
const sum = `${plots} plots with ${letters} texts, ${document.documentElement.scrollHeight} high`;
parent.postMessage(wrong.length ? `${wrong.length} faults, ${sum}\n${wrong.slice(0, 20).join("\n")}` : `ok, ${sum}`, "*");

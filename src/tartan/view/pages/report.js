// The script of a report: marks what is wider than the window. It asks nothing of any network.
"use strict";

function markScrolling(root) {
  for (const part of root.querySelectorAll(".wide, figure.drawing")) part.classList.toggle("scrolls", part.scrollWidth > part.clientWidth + 1);
}

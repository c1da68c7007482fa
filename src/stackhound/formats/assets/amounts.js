// A value with its unit, with three digits that count. `scales` are [least value, name], the largest first.
function amount(value, scales) {
  const [least, name] = scales.find(([least]) => value >= least) ?? scales.at(-1);
  const digits = least === 1 ? 0 : Math.max(0, 3 - String(Math.floor(value / least)).length);
  const options = { minimumFractionDigits: digits, maximumFractionDigits: digits };
  return `${(value / least).toLocaleString("en-US", options)} ${name}`.trimEnd();
}

function percent(part, whole) {
  const share = (100 * part) / whole;
  if (share < 0.01) return part ? "<0.01%" : "0%";
  return `${share.toFixed(share < 10 ? 2 : 1)}%`;
}

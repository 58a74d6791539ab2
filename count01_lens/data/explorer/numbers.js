// Numbers too large or too small for plain digits.

/** A number by its power of ten, as people write it: 2.5·10⁻⁷. */
export function powerText(value, digits) {
  const [size, power] = value.toExponential(digits - 1).split("e");
  const raised = [...power.replace("+", "")].map((sign) => (sign === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[sign]));
  return `${String(Number(size)).replace("-", "−")}·10${raised.join("")}`;
}

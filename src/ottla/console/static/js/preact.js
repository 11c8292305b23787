// Preact, hooks, signals and htm in one place, as all modules of the page use them.
import { h, render, Fragment } from "../vendor/preact.js";
import { useEffect, useMemo, useRef, useState } from "../vendor/hooks.js";
import { signal, computed, effect } from "../vendor/signals.js";
import htm from "../vendor/htm.js";

export const html = htm.bind(h);
export { render, Fragment, useEffect, useMemo, useRef, useState, signal, computed, effect };

// Templates, hooks and signals in one import. It owns nothing but the binding of htm to Preact.
import { h } from "preact";
import htm from "htm";

export { Component, Fragment, createContext, render } from "preact";
export {
  useCallback, useContext, useEffect, useId, useLayoutEffect, useMemo, useRef, useState,
} from "preact/hooks";
export { batch, computed, effect, signal, useComputed, useSignal } from "@preact/signals";

export const html = htm.bind(h);

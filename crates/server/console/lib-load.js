// Data that a component shows: loading, reloading and polling. It owns timers and the cancelling of requests.
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { ApiError } from "./lib-api.js";
import { useParam } from "./lib-router.js";

const asError = (error) =>
  error instanceof ApiError ? error : new ApiError(
    { title: "Error in the console", detail: String(error), status: 0 });

/** Calls `run` each `period_ms` while the page is visible, and at once when it becomes visible again. */
export function usePolling(run, period_ms) {
  const latest = useRef(run);
  latest.current = run;
  useEffect(() => {
    if (!period_ms) return undefined;
    let timer;
    const schedule = () => {
      timer = setTimeout(async () => {
        await latest.current();
        schedule();
      }, period_ms);
    };
    const onVisibility = () => {
      clearTimeout(timer);
      if (document.hidden) return;
      latest.current();
      schedule();
    };
    if (!document.hidden) schedule();
    document.addEventListener("visibilitychange", onVisibility);
    return () => {
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", onVisibility);
    };
  }, [period_ms]);
}

/**
 * Loads with `fetcher(signal)` when `deps` change: `{ data, error, loading, reload, setData }`. The last data
 * stay while a reload runs or fails. A `fetcher` of null loads nothing. `poll_ms` reloads, at least 5 s
 * apart.
 */
export function useLoad(fetcher, deps, { poll_ms = 0 } = {}) {
  const [state, setState] = useState({ data: undefined, error: null, loading: Boolean(fetcher), deps });
  const running = useRef(null);
  const load = useCallback(async () => {
    running.current?.abort();
    if (!fetcher) return;
    const controller = new AbortController();
    running.current = controller;
    setState((old) => ({ ...old, loading: true }));
    try {
      const data = await fetcher(controller.signal);
      if (!controller.signal.aborted) setState({ data, error: null, loading: false, deps });
    } catch (error) {
      if (controller.signal.aborted) return;
      setState((old) => ({ ...old, error: asError(error), loading: false, deps }));
    }
  }, deps);
  useEffect(() => {
    setState((old) => ({ ...old, data: undefined, error: null }));
    load();
    return () => running.current?.abort();
  }, [load]);
  usePolling(load, poll_ms && Math.max(poll_ms, 5000));
  // Data of earlier dependencies are not shown as those of the present ones.
  const isCurrent = deps.every((value, i) => Object.is(value, state.deps[i]));
  const setData = (data) => setState((old) => ({ ...old, data }));
  return isCurrent
    ? { ...state, reload: load, setData }
    : { data: undefined, error: null, loading: true, reload: load, setData };
}

/** A change on request: `{ run, busy, error, clear }`. `run` resolves to undefined after an error. */
export function useAction(action) {
  const [state, setState] = useState({ busy: false, error: null });
  const run = async (...values) => {
    setState({ busy: true, error: null });
    try {
      const result = await action(...values);
      setState({ busy: false, error: null });
      return result ?? true;
    } catch (error) {
      setState({ busy: false, error: asError(error) });
      return undefined;
    }
  };
  return { ...state, run, clear: () => setState({ busy: false, error: null }) };
}

/** The value once it has not changed for `delay_ms`. */
export function useDebounced(value, delay_ms = 300) {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), delay_ms);
    return () => clearTimeout(timer);
  }, [value, delay_ms]);
  return settled;
}

/**
 * A parameter of the URL that a person types: `[text, setText, settled]`. The URL follows once the text has
 * settled, so that a key press renders only the component itself.
 */
export function useTypedParam(name, delay_ms = 250) {
  const [param, setParam] = useParam(name);
  const [text, setText] = useState(param);
  const written = useRef(param);
  const settled = useDebounced(text, delay_ms);
  useEffect(() => {
    if (settled === written.current) return;
    written.current = settled;
    setParam(settled);
  }, [settled]);
  // Another value than the written one comes from a link, or from back and forward.
  useEffect(() => {
    if (param === written.current) return;
    written.current = param;
    setText(param);
  }, [param]);
  return [text, setText, settled];
}

/**
 * A binary heap whose items know where they are, so that any of them can be moved or removed in O(log n).
 *
 * A heap is a bare array, and the order is passed in: a record has four heaps and there are millions of records, so
 * an empty or one-item heap must cost next to nothing.
 */
export interface HeapOrder<T> {
  /** Whether `a` comes out before `b`. */
  before(a: T, b: T): boolean;
  slotOf(item: T): number;
  setSlot(item: T, slot: number): void;
}

export function heapInsert<T>(heap: T[], item: T, order: HeapOrder<T>): void {
  heap.push(item);
  siftUp(heap, item, heap.length - 1, order);
}

/** Removes an item that is in the heap. */
export function heapRemove<T>(heap: T[], item: T, order: HeapOrder<T>): void {
  const slot = order.slotOf(item);
  const last = heap.pop() as T;
  if (last !== item) place(heap, last, slot, order);
}

/** Puts an item of the heap right after what it is ordered by has changed. */
export function heapUpdate<T>(heap: T[], item: T, order: HeapOrder<T>): void {
  place(heap, item, order.slotOf(item), order);
}

function place<T>(heap: T[], item: T, slot: number, order: HeapOrder<T>): void {
  if (siftUp(heap, item, slot, order) === slot) siftDown(heap, item, slot, order);
}

function siftUp<T>(heap: T[], item: T, from: number, order: HeapOrder<T>): number {
  let slot = from;
  while (slot > 0) {
    const parentSlot = (slot - 1) >> 1;
    const parent = heap[parentSlot] as T;
    if (!order.before(item, parent)) break;
    heap[slot] = parent;
    order.setSlot(parent, slot);
    slot = parentSlot;
  }
  heap[slot] = item;
  order.setSlot(item, slot);
  return slot;
}

function siftDown<T>(heap: T[], item: T, from: number, order: HeapOrder<T>): void {
  let slot = from;
  for (;;) {
    let childSlot = 2 * slot + 1;
    if (childSlot >= heap.length) break;
    let child = heap[childSlot] as T;
    if (childSlot + 1 < heap.length) {
      const right = heap[childSlot + 1] as T;
      if (order.before(right, child)) {
        child = right;
        childSlot += 1;
      }
    }
    if (!order.before(child, item)) break;
    heap[slot] = child;
    order.setSlot(child, slot);
    slot = childSlot;
  }
  heap[slot] = item;
  order.setSlot(item, slot);
}

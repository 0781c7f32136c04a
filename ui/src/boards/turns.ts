// SPDX-License-Identifier: Apache-2.0
//! So many things at a time: a board asks all of its queries at once, and the controller lets so many of one address wait.

export class Turns {
  private running = 0;
  private readonly waiting: (() => void)[] = [];

  constructor(private readonly most: number) {}

  async take<T>(work: () => Promise<T>): Promise<T> {
    if (this.running >= this.most) await new Promise<void>((go) => this.waiting.push(go));
    else this.running++;
    try {
      return await work();
    } finally {
      // The place goes to the next one.
      const next = this.waiting.shift();
      if (next === undefined) this.running--;
      else next();
    }
  }
}

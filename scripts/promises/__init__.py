# SPDX-License-Identifier: Apache-2.0
"""What SPECIFICATION.md is made of: promises (spec/NN-name.toml), the paths that they measure (spec/paths.toml), and
what benches recorded (spec/results/*.jsonl).

`promise` reads the promises, `results` reads and writes what was recorded, `age` asks git what has changed since,
`judge` puts the three together, `page` makes the page. The commands are `scripts/specification` and `scripts/record`.
Python of Debian 12, nothing else.
"""

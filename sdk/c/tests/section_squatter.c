// SPDX-License-Identifier: Apache-2.0
/* What an optimiser that takes files apart may do: a variable in the section without the piece that fills up its last page. */
extern long squatter;
long squatter __attribute__((section("onlooker_data"))) = 1;

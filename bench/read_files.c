// SPDX-License-Identifier: Apache-2.0
/* Reads the files that a list names, so many times, each opened anew; prints the CPU time of one pass, ms. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 100000 };

int main(int count, char **arguments)
{
	static char *names[MOST];
	static char line[4096], buffer[16384];
	struct timespec from, to;
	int files = 0, passes;
	FILE *list;

	if (count != 3 || !(list = fopen(arguments[1], "r")))
		return fprintf(stderr, "usage: read_files LIST PASSES\n"), 1;
	while (files < MOST && fgets(line, sizeof(line), list)) {
		line[strcspn(line, "\n")] = 0;
		names[files++] = strdup(line);
	}
	passes = atoi(arguments[2]);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
	for (int pass = 0; pass < passes; pass++)
		for (int at = 0; at < files; at++) {
			int fd = open(names[at], O_RDONLY);

			if (fd < 0 || read(fd, buffer, sizeof(buffer)) < 0)
				return perror(names[at]), 1;
			close(fd);
		}
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
	printf("%.3f\n", ((to.tv_sec - from.tv_sec) * 1e3 + (to.tv_nsec - from.tv_nsec) / 1e6) / passes);
	return 0;
}

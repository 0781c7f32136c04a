// SPDX-License-Identifier: Apache-2.0
/* Opens many TCP connections and keeps them: `accept COUNT [PORT]`, `connect ADDRESS COUNT [PORT]`. Each has sent a few bytes. Ends when it is ended. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PORT = 8080 };

static int fail(const char *what)
{
	perror(what);
	return 1;
}

int main(int count, char **arguments)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(PORT) };
	int is_server = count >= 3 && !strcmp(arguments[1], "accept"), last = is_server ? 2 : 3;
	int number = count > last ? atoi(arguments[last]) : 0, one = 1;
	char bytes[64] = { 0 };

	if (count > last + 1)
		address.sin_port = htons((unsigned short)atoi(arguments[last + 1]));

	if (is_server) {
		int listener = socket(AF_INET, SOCK_STREAM, 0);

		setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
		if (bind(listener, (struct sockaddr *)&address, sizeof(address)) || listen(listener, 4096))
			return fail("listen");
		for (int at = 0; at < number; at++) {
			int fd = accept(listener, NULL, NULL);

			if (fd < 0)
				return fail("accept");
			if (read(fd, bytes, sizeof(bytes)) < 0)
				return fail("read");
		}
	} else {
		if (count < 4 || inet_pton(AF_INET, arguments[2], &address.sin_addr) != 1)
			return fail("usage: connections accept COUNT [PORT] | connect ADDRESS COUNT [PORT]");
		for (int at = 0; at < number; at++) {
			int fd = socket(AF_INET, SOCK_STREAM, 0);

			if (fd < 0)
				return fail("socket");
			/* The listener may not be there yet. */
			for (int tries = 0; connect(fd, (struct sockaddr *)&address, sizeof(address)); tries++) {
				if (errno != ECONNREFUSED || tries > 100)
					return fail("connect");
				close(fd);
				usleep(50000);
				fd = socket(AF_INET, SOCK_STREAM, 0);
			}
			if (write(fd, bytes, sizeof(bytes)) < 0)
				return fail("write");
		}
	}
	for (;;)
		pause();
}

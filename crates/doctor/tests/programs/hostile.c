/*
 * Maps a file as code, writes where, and waits for the end of its standard input. The file is:
 *
 *   hostile file FILE: FILE as it is
 *   hostile device FILE: /dev/zero under the name FILE, which must be there
 *   hostile silent DIRECTORY: libgomp.so.1 of a file system in DIRECTORY, which is served by this
 *     program and answers nothing once the file is mapped
 *
 * The last two need root. They are in a mount namespace of their own, which goes with the program.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define CANNOT 77
#define LENGTH (1 << 16)
#define FILE_NODE 2

static atomic_int silent;

/* The test is left out here: no fault of the doctor. */
static void need(int can, const char *what)
{
	if (!can) {
		perror(what);
		exit(CANNOT);
	}
}

static void own_mounts(void)
{
	need(!unshare(CLONE_NEWNS), "unshare");
	need(!mount("none", "/", 0, MS_REC | MS_PRIVATE, 0), "mount private");
}

static void answer(int fuse, __u64 unique, int error, const void *data, size_t length)
{
	char bytes[4096];
	struct fuse_out_header *out = (void *)bytes;

	*out = (struct fuse_out_header){
		.len = sizeof(*out) + length, .error = error, .unique = unique
	};
	memcpy(out + 1, data, length);
	need(write(fuse, bytes, out->len) == out->len, "answer");
}

static struct fuse_attr attributes(__u64 node)
{
	return (struct fuse_attr){
		.ino = node,
		.size = LENGTH,
		.mode = node == FILE_NODE ? S_IFREG | 0755 : S_IFDIR | 0755,
		.nlink = 1,
	};
}

/* Serves what it takes to map the file, and its contents never. */
static void *serve(void *descriptor)
{
	int fuse = *(int *)descriptor;
	static char request[1 << 20];

	while (read(fuse, request, sizeof(request)) > 0 && !silent) {
		struct fuse_in_header *in = (void *)request;
		struct fuse_init_out init = { .major = FUSE_KERNEL_VERSION, .minor = 31,
					      .max_write = 4096 };
		struct fuse_entry_out entry = { .nodeid = FILE_NODE,
						.attr = attributes(FILE_NODE) };
		struct fuse_attr_out attr = { .attr = attributes(in->nodeid) };
		struct fuse_open_out open = { .fh = 1 };

		if (in->opcode == FUSE_INIT)
			answer(fuse, in->unique, 0, &init, sizeof(init));
		else if (in->opcode == FUSE_LOOKUP)
			answer(fuse, in->unique, 0, &entry, sizeof(entry));
		else if (in->opcode == FUSE_GETATTR)
			answer(fuse, in->unique, 0, &attr, sizeof(attr));
		else if (in->opcode == FUSE_OPEN)
			answer(fuse, in->unique, 0, &open, sizeof(open));
		else if (in->opcode == FUSE_ACCESS || in->opcode == FUSE_FLUSH)
			answer(fuse, in->unique, 0, "", 0);
		/* Reads ahead of the kernel find nobody. */
	}
	pause();
	return 0;
}

static void mount_silent(const char *directory)
{
	static int fuse;
	char options[64];
	pthread_t server;

	own_mounts();
	fuse = open("/dev/fuse", O_RDWR);
	need(fuse >= 0, "/dev/fuse");
	/* Root may look into it, as an administrator may permit. */
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other",
		 fuse);
	need(!mount("silent", directory, "fuse", 0, options), "mount");
	pthread_create(&server, 0, serve, &fuse);
}

int main(int arguments, char **argument)
{
	char path[4096];
	void *address;
	int file;

	if (arguments != 3)
		return 2;
	snprintf(path, sizeof(path), "%s", argument[2]);
	if (!strcmp(argument[1], "device")) {
		own_mounts();
		need(!mount("/dev/zero", path, 0, MS_BIND, 0), "mount");
	} else if (!strcmp(argument[1], "silent")) {
		mount_silent(argument[2]);
		strcat(path, "/libgomp.so.1");
	}
	file = open(path, O_RDONLY);
	need(file >= 0, "open");
	address = mmap(0, LENGTH, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
	need(address != MAP_FAILED, "mmap");
	/* Later the end of the program would wait for an answer. */
	close(file);
	silent = 1;
	printf("%p\n", address);
	fflush(stdout);
	getchar();
	return 0;
}

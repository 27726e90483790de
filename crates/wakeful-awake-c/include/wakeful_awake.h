/*
 * Keeps CPUs from halting while this program has traffic, so that a sleeping
 * thread wakes within microseconds (Linux).
 *
 *	#include <stdio.h>
 *	#include "wakeful_awake.h"
 *
 *	int main(void)
 *	{
 *		if (wakeful_awake_enable() != 0)
 *			fprintf(stderr, "latency is as it was: %s\n",
 *				wakeful_awake_error());
 *		return 0;
 *	}
 *
 * Link with libwakeful_awake_c.a, -lpthread, -ldl and -lm, or with
 * libwakeful_awake_c.so.
 */
#ifndef WAKEFUL_AWAKE_H
#define WAKEFUL_AWAKE_H

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Starts a thread that holds CPUs while this process has traffic. If the
 * machine has a keeper (wakeful keeper), it holds only the CPUs that the
 * process uses. Without a keeper, the thread holds all CPUs, by
 * /dev/cpu_dma_latency. The thread ends with the process. A second call has no
 * effect. A forked child holds no CPU, and may call this function again.
 *
 * Returns 0 on success. Otherwise it returns an error number as in errno.h:
 *	EACCES	the device, the keeper or the kernel's counters may not be used
 *	ENOENT	there is no such device here
 *	ENOTCONN	there is a keeper, but it cannot be reached
 *	E2BIG	the machine has more CPUs than are held by default, or this
 *		process may use less than half of them
 *	ENOTRECOVERABLE	the library has a defect
 * or the number of another error of a system call that it makes. After an
 * error no CPU is held, and wakeful_awake_error() says why, and what would
 * permit it. The call does not change errno.
 *
 * Any thread may call it, but no signal handler.
 */
int wakeful_awake_enable(void);

/*
 * Returns the text of the last error of wakeful_awake_enable() on the calling
 * thread: UTF-8, with a zero byte at its end. The text is empty if that call
 * succeeded, or if there was none. Never returns a null pointer. The text is
 * valid until this thread calls wakeful_awake_enable() again, or ends. Do not
 * free it.
 */
const char *wakeful_awake_error(void);

#ifdef __cplusplus
}
#endif

#endif

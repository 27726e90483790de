/*
 * CPUs that are kept from halting while this program has traffic, so that a
 * thread that sleeps is woken in microseconds (Linux).
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
 * From now on a thread of its own has CPUs held while this process has traffic:
 * those that it uses by the machine's keeper (wakeful keeper), or without one all
 * CPUs by /dev/cpu_dma_latency. It ends with the process. A second call does nothing. A forked child does not hold, and may
 * call it again.
 *
 * Returns 0, or an error's number as in errno.h:
 *	EACCES	the device or the kernel's counters may not be used
 *	ENOENT	there is no such device here
 *	E2BIG	the machine has more CPUs than are held without being told
 *	ENOTRECOVERABLE	a defect of the library
 * or another one of the system calls that it makes. Nothing has changed then,
 * and wakeful_awake_error() says why, and what permits it. Does not change
 * errno.
 *
 * Any thread may call it. Not for signal handlers.
 */
int wakeful_awake_enable(void);

/*
 * What the last wakeful_awake_enable() of the calling thread has said: UTF-8,
 * ends with a zero, and empty after a success or without a call. Never null.
 * Valid until the next wakeful_awake_enable() of this thread, or its end; not
 * to be freed.
 */
const char *wakeful_awake_error(void);

#ifdef __cplusplus
}
#endif

#endif

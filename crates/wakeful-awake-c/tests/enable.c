/* Calls the library as a C program does. Prints the code and the text. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "wakeful_awake.h"

static void *other_thread(void *arg)
{
	(void)arg;
	/* The text is the calling thread's. */
	return strcmp(wakeful_awake_error(), "") == 0 ? NULL : "not empty";
}

int main(void)
{
	pthread_t thread;
	void *wrong;
	int code;

	if (strcmp(wakeful_awake_error(), "") != 0)
		return 10;
	errno = EXDEV;
	code = wakeful_awake_enable();
	if (errno != EXDEV)
		return 11;
	if (pthread_create(&thread, NULL, other_thread, NULL) != 0 ||
	    pthread_join(thread, &wrong) != 0 || wrong != NULL)
		return 12;
	/* A second call says the same. */
	if (wakeful_awake_enable() != code)
		return 13;
	printf("%d %s\n", code, wakeful_awake_error());
	return 0;
}

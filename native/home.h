/* The working directory, and the home of the bus. */
#ifndef PAL_HOME_H
#define PAL_HOME_H

#include <limits.h>

enum { HOME_SIZE = 2 * PATH_MAX }; /* the working directory, and a relative path in it */

extern char working_directory[PATH_MAX]; /* empty when it was removed */
extern char home[HOME_SIZE];

void find_working_directory(void);
void find_home(void);

/* Return a path in the home. The caller frees it, or leaves it to the end of the process. */
char *path_in_home(const char *name);

#endif

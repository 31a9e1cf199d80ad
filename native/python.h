/* Replace this process by Python: for the daemon in the foreground, and for verbs that run in the client's process. */
#ifndef PAL_PYTHON_H
#define PAL_PYTHON_H

#include <stddef.h>

/* Return the interpreter of this installation, found by the real path of this program. */
char *find_python(void);

_Noreturn void run_python(char *module, char **arguments, int count);

/* Run the verb of a V frame: arguments with NUL between them. */
_Noreturn void run_verb(const unsigned char *payload, size_t n);

/* Become the daemon, for `pal up --foreground`. */
_Noreturn void run_in_foreground(void);

/* Refuse invalid arguments of up and down before anything is done. The table of commands is in Python. */
void check_arguments(void);

#endif

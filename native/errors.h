/* How pal ends with an error message. A hook and a rewake print nothing and end with status 0. */
#ifndef PAL_ERRORS_H
#define PAL_ERRORS_H

/* The same text on every system and with every C library. */
const char *error_text(int error);

/* Print one line, as JSON if the call asks for it, and exit. */
_Noreturn void refuse(int status, const char *code, const char *line);
_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void fail_home(int error);
_Noreturn void fail_malformed(void);

#endif

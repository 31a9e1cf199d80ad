/*
 * The early start: the part that most commands need, before the C library has started. Part of pal.c.
 *
 * The program begins here. It sends the request to the daemon and writes the reply with system calls only. Then it
 * ends, and the library is never started. Every other case (no daemon, a file to read, a verb of Python, an error to
 * report) starts the library as if the program began only then, and main continues with the request. All functions that
 * are called from here are in system.h, or call need_library() where they need more.
 */

void early_start(void); /* the entry point that is given to the linker */
void early_main(char **stack);
_Noreturn void early_end(char **stack);

static char **early_stack; /* from the kernel: the number of arguments, the arguments, the environment */

__asm__(".text\n"
        ".globl early_start\n"
        "early_start:\n"
        "    xor %ebp, %ebp\n"
        "    mov %rsp, %rdi\n"
        "    and $-16, %rsp\n"
        "    call early_main\n"
        "    hlt\n"
        ".globl early_end\n"
        "early_end:\n"
        "    mov %rdi, %rsp\n"
        "    xor %ebp, %ebp\n"
        "    xor %edx, %edx\n" /* no function of a dynamic linker is called at the end */
        "    jmp _start\n");

static _Noreturn void start_library(void)
{
    early_end(early_stack);
}

void early_main(char **stack)
{
    int count = (int)(intptr_t)stack[0];
    char **all = stack + 1;

    early_stack = stack;
    is_early = true;
    environ = all + count + 1;
    read_arguments(count, all);
    if (call.version)
        say_version();
    if (call.help || call.up || call.down || call.mcp || call.monitor || call.repair)
        start_library();
    if (call.hook)
        begin_hook_limit();
    if (!sys_cwd(cwd, sizeof cwd))
        start_library();
    find_home();
    build_request();
    if (call.hook)
        run_hook();
    catch_signals();
    wire = connect_home();
    if (wire < 0) /* start the daemon, or report the error */
        start_library();
    send_request();
    serve();
    start_library(); /* the daemon was lost before it ended the command */
}

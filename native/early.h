/*
 * The early start: what most commands need, before the C library has started. Part of pal.c.
 *
 * The program begins here. It asks the daemon and writes out the answer by system calls alone; then it is over, and the
 * library was never started. Whatever else comes up (nobody listens, a file to read, a verb of Python, an error that
 * must be told) starts the library, as if the program began only then, and main goes on with what was asked.
 * All that is called from here is in system.h, or says by need_library() where it stops being enough.
 */

void early_start(void); /* the linker is told that the program begins here */
void early_main(char **stack);
_Noreturn void early_end(char **stack);

static char **early_stack; /* as the kernel left it: the number of arguments, the arguments, the environment */

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
        "    xor %edx, %edx\n" /* no function of a dynamic linker is to be called at the end */
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
    if (wire < 0) /* somebody has to be started, or told */
        start_library();
    send_request();
    serve();
    start_library(); /* the daemon was lost before it had said the end */
}

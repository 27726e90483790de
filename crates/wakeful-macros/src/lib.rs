//! The attributes `#[wakeful::main]` and `#[wakeful::test]`: an `async fn` becomes a plain one that
//! runs its body with `wakeful::block_on`. Use them through the crate `wakeful` (package
//! `wakeful-rt`, feature `macros`).

use proc_macro::TokenStream;
use proc_macro2::Span;
use quote::quote;
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{AttrStyle, Error, Ident, ItemFn, Meta, Result, Token};

/// Runs an `async fn main` on a new event loop.
///
/// ```
/// #[wakeful::main]
/// async fn main() -> std::io::Result<()> {
///     wakeful::time::sleep(std::time::Duration::from_millis(1)).await;
///     Ok(())
/// }
/// ```
///
/// The generated function is not `async`. It runs the body with `wakeful::block_on`, and returns
/// what the body returns.
///
/// With the argument `tokio` (and the feature `tokio` of `wakeful-rt`), Tokio is a guest of that
/// loop: see `wakeful::tokio`.
///
/// ```
/// #[wakeful::main(tokio)]
/// async fn main() {
///     tokio::time::sleep(std::time::Duration::from_millis(1)).await;
/// }
/// ```
///
/// # Panics
/// The generated function panics if `wakeful::block_on` does: if the body panics, if no loop can be
/// built (for example, no descriptors are left), or if a loop already runs on this thread.
#[proc_macro_attribute]
pub fn main(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand(arguments, Allowed::Main, item, |function| {
        if function.sig.ident == "main" && !function.sig.inputs.is_empty() {
            return Err(Error::new(function.sig.inputs.span(), "`main` takes no arguments"));
        }
        Ok(quote!())
    })
}

/// Makes an `async fn` a test that runs on a new event loop.
///
/// As for `#[test]`, the test fails if the function panics or returns an error. It also fails if no
/// loop can be built. With `#[wakeful::test(tokio)]` Tokio is a guest of that loop.
///
/// ```test_harness
/// #[wakeful::test]
/// async fn a_yielding_task_comes_back() {
///     wakeful::task::yield_now().await;
/// }
/// ```
///
/// With the argument `start_paused` (and the feature `test-util` of `wakeful-rt`), the clock of the
/// loop's timers is paused from the start. When the test would wait, the clock jumps to the next
/// timer: see `wakeful::time::pause`. The arguments can be combined:
/// `#[wakeful::test(tokio, start_paused)]`.
///
/// ```test_harness
/// use std::time::Duration;
///
/// #[wakeful::test(start_paused)]
/// async fn an_hour_takes_no_time() {
///     let start = wakeful::time::now();
///     wakeful::time::sleep(Duration::from_secs(3600)).await;
///     assert_eq!(wakeful::time::now() - start, Duration::from_secs(3600));
/// }
/// ```
#[proc_macro_attribute]
pub fn test(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand(arguments, Allowed::Test, item, |function| {
        if !function.sig.inputs.is_empty() {
            return Err(Error::new(function.sig.inputs.span(), "a test takes no arguments"));
        }
        Ok(quote!(#[::core::prelude::v1::test]))
    })
}

/// Which arguments an attribute takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Allowed {
    Main,
    Test,
}

/// What the arguments of an attribute say.
#[derive(Debug, Default)]
struct Arguments {
    tokio: bool,
    start_paused: bool,
}

impl Arguments {
    fn parse(arguments: TokenStream, allowed: Allowed) -> Result<Self> {
        let mut parsed = Self::default();
        for argument in Punctuated::<Meta, Token![,]>::parse_terminated.parse(arguments)? {
            let is = |name| argument.path().is_ident(name);
            let is_given = match allowed {
                _ if is("tokio") => &mut parsed.tokio,
                Allowed::Test if is("start_paused") => &mut parsed.start_paused,
                Allowed::Main if is("start_paused") => {
                    let text = "only tests take `start_paused`; for a loop of a program, use `EventLoopBuilder::start_paused`";
                    return Err(Error::new(argument.span(), text));
                }
                Allowed::Main => {
                    let text = "this attribute takes no argument but `tokio`; build an `EventLoop` or a `LoopGroup` for settings";
                    return Err(Error::new(argument.span(), text));
                }
                Allowed::Test => {
                    let text = "this attribute takes no arguments but `tokio` and `start_paused`; build an `EventLoop` or a `LoopGroup` for settings";
                    return Err(Error::new(argument.span(), text));
                }
            };
            if !matches!(argument, Meta::Path(_)) {
                return Err(Error::new(
                    argument.span(),
                    "this argument has no value: its name says it",
                ));
            }
            if std::mem::replace(is_given, true) {
                return Err(Error::new(argument.span(), "this argument is here twice"));
            }
        }
        Ok(parsed)
    }

    /// An expression that runs `future`, an expression too.
    fn run(&self, future: &proc_macro2::TokenStream) -> proc_macro2::TokenStream {
        if !self.start_paused {
            return match self.tokio {
                false => quote!(::wakeful::block_on(#future)),
                true => quote!(::wakeful::tokio::block_on(#future)),
            };
        }
        let guest = self.tokio.then(|| quote!(.tokio()));
        // The name cannot clash with a name in the test's own code.
        let event_loop = Ident::new("event_loop", Span::mixed_site());
        quote! {
            ::wakeful::EventLoop::builder()#guest.start_paused(true)
                .build()
                .and_then(|mut #event_loop| #event_loop.block_on(#future))
                .expect("a loop can be built and run for this test")
        }
    }
}

fn expand(
    arguments: TokenStream,
    allowed: Allowed,
    item: TokenStream,
    attribute_for: impl FnOnce(&ItemFn) -> Result<proc_macro2::TokenStream>,
) -> TokenStream {
    let expanded = || {
        let arguments = Arguments::parse(arguments, allowed)?;
        let mut function: ItemFn = syn::parse(item)?;
        if function.sig.asyncness.take().is_none() {
            return Err(Error::new(function.sig.fn_token.span(), "this must be an `async fn`"));
        }
        let attribute = attribute_for(&function)?;
        let ItemFn { attrs, vis, sig, block, .. } = &function;
        // Those at the top of its body (`#![allow(…)]`) are allowed only there.
        let (outer, inner): (Vec<_>, Vec<_>) =
            attrs.iter().partition(|attribute| matches!(attribute.style, AttrStyle::Outer));
        let body = arguments.run(&quote!(async move #block));
        Ok(quote! {
            #(#outer)*
            #attribute
            #vis #sig {
                #(#inner)*
                #body
            }
        })
    };
    expanded().unwrap_or_else(Error::into_compile_error).into()
}

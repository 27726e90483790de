//! The attributes `#[wakeful::main]` and `#[wakeful::test]`: an `async fn` becomes a plain one
//! that runs its body with `wakeful::block_on`. Use them through the `wakeful` crate.

use proc_macro::TokenStream;
use quote::quote;
use syn::spanned::Spanned;
use syn::{Error, ItemFn, Result};

/// Runs an `async fn main` on an event loop of its own.
///
/// ```ignore
/// #[wakeful::main]
/// async fn main() -> std::io::Result<()> {
///     wakeful::time::sleep(std::time::Duration::from_millis(1)).await;
///     Ok(())
/// }
/// ```
///
/// With the argument `tokio` (and the feature `tokio` of `wakeful-rt`), Tokio is a guest of that
/// loop: `wakeful::tokio` says what that means.
///
/// ```ignore
/// #[wakeful::main(tokio)]
/// async fn main() {
///     tokio::time::sleep(std::time::Duration::from_millis(1)).await;
/// }
/// ```
///
/// # Panics
/// The generated function panics where `wakeful::block_on` does: no descriptors left, or a loop
/// already running on this thread.
#[proc_macro_attribute]
pub fn main(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand(&arguments, item, |function| {
        if function.sig.ident == "main" && !function.sig.inputs.is_empty() {
            return Err(Error::new(function.sig.inputs.span(), "`main` takes no arguments"));
        }
        Ok(quote!())
    })
}

/// Makes a test of an `async fn`: it runs on an event loop of its own. `#[wakeful::test(tokio)]`
/// has Tokio as that loop's guest.
///
/// ```ignore
/// #[wakeful::test]
/// async fn a_yielding_task_comes_back() {
///     wakeful::task::yield_now().await;
/// }
/// ```
#[proc_macro_attribute]
pub fn test(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand(&arguments, item, |function| {
        if !function.sig.inputs.is_empty() {
            return Err(Error::new(function.sig.inputs.span(), "a test takes no arguments"));
        }
        Ok(quote!(#[::core::prelude::v1::test]))
    })
}

fn expand(
    arguments: &TokenStream,
    item: TokenStream,
    attribute_for: impl FnOnce(&ItemFn) -> Result<proc_macro2::TokenStream>,
) -> TokenStream {
    let expanded = || {
        let block_on = match arguments.to_string().as_str() {
            "" => quote!(::wakeful::block_on),
            "tokio" => quote!(::wakeful::tokio::block_on),
            _ => {
                return Err(Error::new(
                    proc_macro2::Span::call_site(),
                    "this attribute takes no argument but `tokio`; build an `EventLoop` or a `LoopGroup` for settings",
                ));
            }
        };
        let mut function: ItemFn = syn::parse(item)?;
        if function.sig.asyncness.take().is_none() {
            return Err(Error::new(function.sig.fn_token.span(), "this must be an `async fn`"));
        }
        let attribute = attribute_for(&function)?;
        let ItemFn { attrs, vis, sig, block, .. } = &function;
        Ok(quote! {
            #(#attrs)*
            #attribute
            #vis #sig {
                #block_on(async move #block)
            }
        })
    };
    expanded().unwrap_or_else(Error::into_compile_error).into()
}
